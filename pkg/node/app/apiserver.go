// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// kubeconfigRetry is the delay between two tries to read the kubeconfig.
const kubeconfigRetry = time.Second

// The reasons of events.
const (
	reasonRefused   = "DevicesRefused" // on pods that are refused
	reasonUnhealthy = "DeviceAiling"   // on pods that hold a device which is unhealthy or gone
	reasonDamaged   = "GrantsDamaged"  // on the node whose checkpoint of grants was corrupt
	// On the node whose devices cannot be published, whatever the API server says.
	reasonNotPublished = "DevicesNotPublished"
)

// connect returns a client with the credentials in the file. It waits for a file that is not there
// or not complete yet: the kubelet makes it when it bootstraps. It returns nil when ctx is done.
func connect(ctx context.Context, kubeconfig string) kubernetes.Interface {
	logger := klog.FromContext(ctx)
	logged := ""
	for {
		client, err := newClient(kubeconfig)
		if err == nil {
			return client
		}
		if err.Error() != logged {
			logger.Info("Waiting for a kubeconfig that can be used", "kubeconfig", kubeconfig, "reason", err.Error())
			logged = err.Error()
		}
		timer := time.NewTimer(kubeconfigRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// newClient returns a client with the credentials in the file. It does not call the API server.
func newClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubecri/" + version.Get().GitVersion
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(config)
}

// announcer puts events on pods and on the node. Events before there is a client are lost; the log
// has them too.
type announcer struct {
	nodeName    string
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorderLogger
}

func newAnnouncer(ctx context.Context, nodeName string) *announcer {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	source := corev1.EventSource{Component: "kubecri", Host: nodeName}
	return &announcer{nodeName, broadcaster, broadcaster.NewRecorder(scheme.Scheme, source)}
}

// sendTo sends the events of now on with the client.
func (a *announcer) sendTo(client kubernetes.Interface) {
	a.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
}

// warn puts a warning on the pod. The same warning again is counted, not repeated.
func (a *announcer) warn(pod *corev1.ObjectReference, message string) {
	a.recorder.Event(pod, corev1.EventTypeWarning, reasonRefused, message)
}

// warnOfDevice puts a warning on the pod about a device that it holds.
func (a *announcer) warnOfDevice(pod *corev1.ObjectReference, message string) {
	a.recorder.Event(pod, corev1.EventTypeWarning, reasonUnhealthy, message)
}

// warnOfDamage puts a warning on the node if its checkpoint of grants was corrupt, once that is
// known.
func (a *announcer) warnOfDamage(ctx context.Context, record *grants.Checkpoint, path string) {
	select {
	case <-record.Opened():
	case <-ctx.Done():
		return
	}
	if !record.WasCorrupt() {
		return
	}
	a.recorder.Eventf(a.node(), corev1.EventTypeWarning, reasonDamaged,
		"kubecri's checkpoint of which pod holds which device "+
			"was corrupt; it was renamed to %s.corrupt-* and is made again from the runtime's containers. Check the "+
			"node's disk", path)
}

// warnOfInventory puts a warning on the node that its devices cannot be published.
func (a *announcer) warnOfInventory(err error) {
	a.recorder.Eventf(a.node(), corev1.EventTypeWarning, reasonNotPublished, "%v. What was published before stays", err)
}

// node refers to the node as the kubelet's events do, which have the name for a UID, too; that is
// how they are found.
func (a *announcer) node() *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Node", Name: a.nodeName, UID: types.UID(a.nodeName)}
}

// close ends the announcer. It returns when nothing more is sent.
func (a *announcer) close() { a.broadcaster.Shutdown() }

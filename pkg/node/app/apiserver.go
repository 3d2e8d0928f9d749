// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"sync"
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

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/telemetry"
)

// kubeconfigRetry is the delay between two tries to read the kubeconfig.
const kubeconfigRetry = time.Second

// The reasons of events.
const (
	reasonRefused  = "DevicesRefused"       // on pods that are refused
	reasonBypassed = "DeviceRequestIgnored" // on pods that request devices past the scheduler
	reasonDamaged  = "GrantsDamaged"        // on the node whose checkpoint of grants was corrupt
	reasonMistake  = "RequestMistake"       // on pods with a misspelled request, as by the scheduler
	reasonLeftOut  = "DeviceAnswerLeftOut"  // on pods whose container lacks a part of what plugins answered
	// On pods with a container to which no program adds its devices.
	reasonMissing = "DevicesMissing"
	// On pods with a container whose annotation KubeDevice/Grant does not count.
	reasonIgnored = "GrantIgnored"
	// On the node whose devices cannot be published, whatever the API server says.
	reasonNotPublished = "DevicesNotPublished"
	// On the node with a resource that two plugins have.
	reasonConflict = "ResourceConflict"
	// On pods with a container that was started while kubecri was away, and is ended.
	reasonEnded = "ContainerEnded"
	// On pods that get devices without a valid seal.
	reasonNotSealed = "DevicesNotSealed"
	// On the node that demands seals which the scheduler does not make.
	reasonSealMode = "SealModeConflict"
	// On the node, about its devices. Those on pods are in package devicehealth.
	reasonHealthy, reasonUnhealthy = "DeviceHealthy", "DeviceUnhealthy"
	reasonTaints                   = "DeviceTaints"
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
			logger.Info("Waiting for a kubeconfig that can be used", logkey.Kubeconfig, kubeconfig,
				logkey.Reason, err.Error())
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

// maxWaiting is how many events wait for a client. The log has them too.
const maxWaiting = 256

// announcer puts events on pods and on the node. Those before there is a client wait for it.
type announcer struct {
	nodeName    string
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorderLogger

	mu      sync.Mutex
	sending bool
	waiting []event
}

// event is an event that waits for a client.
type event struct {
	about                 *corev1.ObjectReference
	kind, reason, message string // kind as Kubernetes names types of events
}

func newAnnouncer(ctx context.Context, nodeName string) *announcer {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	source := corev1.EventSource{Component: "kubecri", Host: nodeName}
	return &announcer{
		nodeName: nodeName, broadcaster: broadcaster, recorder: broadcaster.NewRecorder(scheme.Scheme, source),
	}
}

// sendTo sends all events with the client.
func (a *announcer) sendTo(client kubernetes.Interface) {
	a.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sending = true
	for _, e := range a.waiting {
		a.send(e)
	}
	a.waiting = nil
}

// Warn puts a warning on an object. The same warning again is counted, not repeated.
func (a *announcer) Warn(about *corev1.ObjectReference, reason, message string) {
	a.announce(about, corev1.EventTypeWarning, reason, message)
}

// announce is Warn for any type of event.
func (a *announcer) announce(about *corev1.ObjectReference, eventType, reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := event{about, eventType, reason, message}
	switch {
	case a.sending:
		a.send(e)
	case len(a.waiting) < maxWaiting:
		a.waiting = append(a.waiting, e)
	}
}

func (a *announcer) send(e event) { a.recorder.Event(e.about, e.kind, e.reason, e.message) }

// WarnRefused puts a warning on the pod that it is refused.
func (a *announcer) WarnRefused(pod *corev1.ObjectReference, message string) {
	a.Warn(pod, reasonRefused, message)
}

// WarnNotSealed puts a warning on the pod that its allocation has no valid seal.
func (a *announcer) WarnNotSealed(pod *corev1.ObjectReference, message string) {
	a.recorder.Event(pod, corev1.EventTypeWarning, reasonNotSealed, message)
}

// WarnIgnored puts a warning on the pod that one of its requests is ignored.
func (a *announcer) WarnIgnored(pod *corev1.ObjectReference, message string) {
	a.Warn(pod, reasonBypassed, message)
}

// WarnMistake puts a warning on the pod that its request is misspelled.
func (a *announcer) WarnMistake(pod *corev1.ObjectReference, message string) {
	a.Warn(pod, reasonMistake, message)
}

// WarnLeftOut puts a warning on the pod that a container of it lacks a part of what device
// plugins answered.
func (a *announcer) WarnLeftOut(pod *corev1.ObjectReference, message string) {
	a.Warn(pod, reasonLeftOut, message)
}

// warnOfFinding puts a warning on the pod of a container whose annotation does not count.
func (a *announcer) warnOfFinding(found grants.Finding) {
	a.Warn(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: found.Namespace, Name: found.Name, UID: types.UID(found.PodUID),
	}, reasonIgnored, found.Message)
}

// WarnEnded puts a warning on the pod that one of its containers is ended, or its sandbox removed.
func (a *announcer) WarnEnded(pod admission.Pod, message string) {
	a.Warn(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
	}, reasonEnded, message)
}

// warnOfDamage puts a warning on the node if its checkpoint of grants was corrupt, once that is
// known.
func (a *announcer) warnOfDamage(ctx context.Context, checkpoint *grants.Checkpoint, path string) {
	select {
	case <-checkpoint.Opened():
	case <-ctx.Done():
		return
	}
	if !checkpoint.WasCorrupt() {
		return
	}
	a.Warn(a.node(), reasonDamaged, fmt.Sprintf("kubecri's checkpoint of which pod holds which device was corrupt; "+
		"it was renamed to %s.corrupt-* and is made again from the runtime's containers. Check the node's disk", path))
}

// WarnOfInventory puts a warning on the node that its devices, or some of them, cannot be
// published.
func (a *announcer) WarnOfInventory(err error) {
	a.Warn(a.node(), reasonNotPublished, err.Error())
}

// WarnOfConflict puts a warning on the node that a plugin does not offer a resource, because
// another one has it.
func (a *announcer) WarnOfConflict(conflict error) {
	a.Warn(a.node(), reasonConflict, conflict.Error())
}

// warnOfSealMode puts a warning on the node that it demands more seals than the scheduler makes.
func (a *announcer) warnOfSealMode(conflict string) { a.Warn(a.node(), reasonSealMode, conflict) }

// AnnounceHealth puts an event on the node about its devices.
func (a *announcer) AnnounceHealth(eventType, message string) {
	reason := reasonUnhealthy
	if eventType == corev1.EventTypeNormal {
		reason = reasonHealthy
	}
	a.announce(a.node(), eventType, reason, message)
}

// AnnounceTaints puts an event on the node about taints of its devices.
func (a *announcer) AnnounceTaints(eventType, message string) {
	a.announce(a.node(), eventType, reasonTaints, message)
}

// node refers to the node as the kubelet's events do, which have the name for a UID, too; that is
// how they are found.
func (a *announcer) node() *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Node", Name: a.nodeName, UID: types.UID(a.nodeName)}
}

// close ends the announcer. It returns when nothing more is sent.
func (a *announcer) close() { a.broadcaster.Shutdown() }

// clientOf connects by a kubeconfig.
type clientOf string

var _ telemetry.Clients = clientOf("")

// Client implements telemetry.Clients.
func (c clientOf) Client() (kubernetes.Interface, error) { return newClient(string(c)) }

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// kubeconfigRetry is the pause between two looks for a kubeconfig.
const kubeconfigRetry = time.Second

// eventReason is the reason of the events on pods that are refused.
const eventReason = "DevicesRefused"

// connect returns a client with the credentials in the file. It waits for a file that is not there or not complete yet: the
// kubelet makes it when it bootstraps. It returns nil when ctx is done.
func connect(ctx context.Context, kubeconfig string) kubernetes.Interface {
	logger := klog.FromContext(ctx)
	said := ""
	for {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			config.UserAgent = "kubecri/" + version.Get().GitVersion
			config.ContentType = "application/vnd.kubernetes.protobuf"
			var client *kubernetes.Clientset
			if client, err = kubernetes.NewForConfig(config); err == nil {
				return client
			}
		}
		if err.Error() != said {
			logger.Info("Waiting for a kubeconfig that can be used", "kubeconfig", kubeconfig, "reason", err.Error())
			said = err.Error()
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

// announcer puts events on pods. Events before there is a client are lost; the log has them too.
type announcer struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorderLogger
}

func newAnnouncer(ctx context.Context, nodeName string) *announcer {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	source := corev1.EventSource{Component: "kubecri", Host: nodeName}
	return &announcer{broadcaster, broadcaster.NewRecorder(scheme.Scheme, source)}
}

// sendTo sends the events of now on with the client.
func (a *announcer) sendTo(client kubernetes.Interface) {
	a.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
}

// warn puts a warning on the pod. The same warning again is counted, not repeated.
func (a *announcer) warn(pod *corev1.ObjectReference, message string) {
	a.recorder.Event(pod, corev1.EventTypeWarning, eventReason, message)
}

// close ends the announcer. It returns when nothing more is sent.
func (a *announcer) close() { a.broadcaster.Shutdown() }

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolments

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/audit"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// gpus is what all pods request, one each.
const gpus corev1.ResourceName = "nvidia.com/gpu"

// newPod returns a pod for a node with a GPU. script is what its container does.
func newPod(namespace, name, node, script string) *corev1.Pod {
	pod := clustertest.On(node, kube.NewPod(name, image.Busybox, "sh", "-c", script))
	pod.Namespace = namespace
	// A pod without grace is gone from the API server before its container is.
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	container := &pod.Spec.Containers[0]
	container.Resources = clustertest.Limits(map[corev1.ResourceName]int64{gpus: 1})
	container.Env = []corev1.EnvVar{audit.NodeVariable()}
	return pod
}

// The scripts of containers: one that runs until it is ended, one that ends after some seconds, and
// one that ends once, and then runs on.
const idle = "trap exit TERM; sleep 86400 & wait"

func brief(seconds float64) string {
	return fmt.Sprintf("trap exit TERM; sleep %.1f & wait", seconds)
}

func restarting(seconds float64) string {
	return fmt.Sprintf("if [ -e /state/again ]; then %s; fi; touch /state/again; %s", idle, brief(seconds))
}

// pods notes what becomes of the pods of a namespace. It may be used from several goroutines.
type pods struct {
	client    *kube.Client
	namespace string
	sites     map[string]*site // by node

	mu      sync.Mutex
	failed  map[string]failure // by the pod's UID
	refused map[string]string  // what the runtime or kubecri said, by pod
}

// failure is a pod that failed, when that was seen, and what was going on on its node.
type failure struct {
	pod   *corev1.Pod
	at    time.Time
	phase string
}

func newPods(client *kube.Client, namespace string, sites []*site) *pods {
	p := &pods{client: client, namespace: namespace, sites: map[string]*site{}, failed: map[string]failure{},
		refused: map[string]string{}}
	for _, s := range sites {
		p.sites[s.node.Name] = s
	}
	return p
}

// watch notes until ctx is done.
func (p *pods) watch(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithNamespace(p.namespace))
	defer factory.Shutdown()
	//nolint:errcheck // an informer that has not been started takes every handler
	factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.note(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { p.note(object.(*corev1.Pod)) },
	})
	factory.Start(ctx.Done())
	<-ctx.Done()
}

func (p *pods) note(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod.DeletionTimestamp != nil {
		return
	}
	if _, known := p.failed[string(pod.UID)]; !known && pod.Status.Phase == corev1.PodFailed {
		p.failed[string(pod.UID)] = failure{pod, time.Now(), p.sites[pod.Spec.NodeName].phaseNow()}
	}
	for _, status := range pod.Status.ContainerStatuses {
		waiting := status.State.Waiting
		if waiting == nil || !strings.HasSuffix(waiting.Reason, "Error") || cutOff(waiting.Message) {
			continue
		}
		p.refused[pod.Name] = waiting.Reason + ": " + waiting.Message
	}
}

// cutOff reports whether a call failed because who served it was killed.
func cutOff(message string) bool {
	return slices.ContainsFunc([]string{
		"code = Unavailable", "code = Canceled", "error reading from server: EOF", "connection reset by peer",
	}, func(text string) bool { return strings.Contains(message, text) })
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
	"github.com/kubedevice/kubedevice/test/kube"
)

// faultyPlugin makes the scheduler's plugin a faulty one.
const faultyPlugin = "KUBEDEVICE_TEST_FAULTY_PLUGIN"

// hangTime is how long a call of the faulty plugin hangs: for longer than its limit.
const hangTime = 3 * time.Second

// faulty is a plugin for GPUs that is not safe for concurrent use, and fails for pods whose
// annotation requests that.
type faulty struct{ *gpuscheduler.Scheduler }

// newPlugin returns the plugin that the tests' scheduler has.
func newPlugin(gpus *gpuscheduler.Scheduler) devicescheduler.DeviceScheduler {
	if os.Getenv(faultyPlugin) != "" {
		return faulty{gpus}
	}
	return gpus
}

func (faulty) ConcurrentSafe() bool { return false }

func (f faulty) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo, fill bool) (
	bool, []devicescheduler.PredicateFailureReason, float64,
) {
	fail(pod)
	return f.Scheduler.PodFitsDevice(node, pod, fill)
}

// Preferring returns the scheduler of a cluster that prefers topology, which fails likewise.
func (f faulty) Preferring() devicescheduler.DeviceScheduler {
	preferring := f.Scheduler.Preferring()
	return faultyPreferring{preferring, preferring.(devicescheduler.Refiner)}
}

type faultyPreferring struct {
	devicescheduler.DeviceScheduler
	devicescheduler.Refiner
}

func (f faultyPreferring) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo, fill bool) (
	bool, []devicescheduler.PredicateFailureReason, float64,
) {
	fail(pod)
	return f.DeviceScheduler.PodFitsDevice(node, pod, fill)
}

// fail fails as the pod's annotation requests.
func fail(pod *types.PodInfo) {
	for name, quantity := range pod.RunningContainers["main"].Requests {
		switch name {
		case "faulty/panic":
			panic(fmt.Sprintf("no recipe for %d", quantity))
		case "faulty/exit":
			runtime.Goexit()
		case "faulty/hang":
			time.Sleep(hangTime)
		}
	}
}

// faultyPod returns a pod with a GPU for which the plugin fails.
func faultyPod(name, failure string, quantity int) *corev1.Pod {
	pod := newPod(name, 1)
	kube.SetRequests(pod, fmt.Sprintf(`"faulty/%s":%d`, failure, quantity))
	return pod
}

// A tenant has pods that make a plugin fail on each call, with the same request and with several.
// They pend, with the reason in their events. Pods of others are bound within their usual time.
func TestPodsThatMakeAPluginFailPendAndOthersAreBound(t *testing.T) {
	t.Setenv(faultyPlugin, "1")
	c := newCluster(t)
	for _, name := range []string{"n1", "n2", "n3"} {
		c.node(name, 8)
	}
	startScheduler(t)
	const count = 20
	bindAll := func(name string) time.Duration {
		start := time.Now()
		pods := make([]*corev1.Pod, count)
		for i := range pods {
			pods[i] = c.create(newPod(fmt.Sprint(name, i), 1))
		}
		for _, pod := range pods {
			c.await(pod, "to be bound", kube.Scheduled)
		}
		took := time.Since(start)
		for _, pod := range pods {
			c.delete(pod)
		}
		return took
	}
	c.delete(c.schedule(newPod("first", 1)))
	usual := bindAll("usual")

	const panics = `device scheduler "gpus": PodFitsDevice: it fails for what this pod requests: panic: no recipe for `
	why := map[*corev1.Pod]string{}
	for i := range 5 {
		why[c.create(faultyPod(fmt.Sprint("panic", i), "panic", 1+i))] = panics + fmt.Sprint(1+i)
		why[c.create(faultyPod(fmt.Sprint("same", i), "panic", 100))] = panics + "100"
		why[c.create(faultyPod(fmt.Sprint("exit", i), "exit", 1+i))] = "it ended the goroutine of the call"
	}
	meanwhile := bindAll("others")
	t.Logf("%d pods were bound in %v, and in %v with pods that make the plugin fail", count, usual, meanwhile)
	if limit := 2*usual + 15*time.Second; meanwhile > limit {
		t.Errorf("%d pods were bound in %v with pods that make the plugin fail, want at most %v",
			count, meanwhile, limit)
	}
	for pod, reason := range why {
		c.awaitReason(pod, reason)
	}

	// A call that hangs holds the others up until it returns, on one node and on another.
	hanging := c.create(faultyPod("hangs", "hang", 1))
	c.awaitReason(hanging, "PodFitsDevice: it fails for what this pod requests: no answer within 1s")
	held := bindAll("later")
	t.Logf("%d pods were bound in %v with one that makes the plugin hang", count, held)
	if limit := 2*hangTime + 2*usual + 15*time.Second; held > limit { // it is tried on a second node
		t.Errorf("%d pods were bound in %v with one that makes the plugin hang, want at most %v", count, held, limit)
	}
	for pod := range why {
		if pod := c.await(pod, "to be there", func(*corev1.Pod) bool { return true }); kube.Scheduled(pod) {
			t.Errorf("pod %s is bound to %s", pod.Name, pod.Spec.NodeName)
		}
	}
}

// awaitReason waits until a pod is unschedulable for a reason, which its event has too.
func (c *cluster) awaitReason(pod *corev1.Pod, reason string) {
	c.Helper()
	c.await(pod, "to be unschedulable because "+reason, func(pod *corev1.Pod) bool {
		return kube.Unschedulable(pod) && strings.Contains(whyUnscheduled(pod), reason)
	})
	c.awaitFailure(pod, reason)
}

// awaitFailure waits until an event says that a pod was not scheduled for a reason.
func (c *cluster) awaitFailure(pod *corev1.Pod, reason string) {
	c.Helper()
	what := fmt.Sprintf("an event of pod %s with the reason %q", pod.Name, reason)
	c.until(what, func(ctx context.Context) (bool, error) {
		events, err := c.PodEvents(ctx, pod)
		return slices.ContainsFunc(events, func(event corev1.Event) bool {
			return event.Reason == "FailedScheduling" && strings.Contains(event.Message, reason)
		}), err
	})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/audit"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var failures = flag.Int("failures", 4, "how many GPUs fail in TestManyGPUsFail, one after another")

// replaceTimeout is how long after its GPU has failed a container may be back at work with another
// one, beyond its own start, where no program is killed.
const replaceTimeout = 20 * time.Second

// outcomes are what may be wanted of a pod whose GPU fails, and how it is known that it was done:
// done returns the pod that there is then.
var outcomes = []struct {
	name, policy string
	replicated   bool // by a ReplicaSet, which makes the pod again
	budget       bool // forbids that the pod is evicted
	ends         bool // the container does
	done         func(ctx context.Context, t *testing.T, pod *corev1.Pod, broken string, of fault) *corev1.Pod
}{
	{name: "Replace", policy: "Replace", ends: true,
		done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, broken string, _ fault) *corev1.Pod {
			pod = clustertest.AwaitReplaced(ctx, t, shared.Client, pod)
			if has := expectGPU(ctx, t, pod); has == broken {
				t.Errorf("the container has %s, which has failed", broken)
			}
			return pod
		}},
	{name: "Ignore", policy: "Ignore",
		done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, _ string, of fault) *corev1.Pod {
			clustertest.AwaitHealth(ctx, t, shared.Client, pod, of.conditions()...)
			clustertest.ExpectUntouched(ctx, t, shared.Client, pod)
			return pod
		}},
	{name: "Evict", policy: "Evict", replicated: true, ends: true,
		done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, broken string, _ fault) *corev1.Pod {
			moved := clustertest.AwaitReplica(ctx, t, shared.Client, pod.Namespace, pod.Labels["app"], pod.UID)
			if has := expectGPU(ctx, t, moved); moved.Spec.NodeName == pod.Spec.NodeName && has == broken {
				t.Errorf("the next pod has %s, which has failed", broken)
			}
			return moved
		}},
	{name: "Evict within a budget", policy: "Evict", replicated: true, budget: true,
		done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, _ string, _ fault) *corev1.Pod {
			clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceFailureBlocked")
			clustertest.ExpectUntouched(ctx, t, shared.Client, pod)
			return pod
		}},
}

// times are how long something took, by whether a program was killed meanwhile.
type times map[bool][]time.Duration

func (d times) log(t *testing.T) {
	for killed, list := range d {
		slices.Sort(list)
		t.Logf("replaced and ready, a program killed: %v: half of %d after %v, all after %v", killed, len(list),
			list[len(list)/2].Round(10*time.Millisecond), slices.Max(list).Round(10*time.Millisecond))
	}
}

// In every second failure a program is killed: the scheduler, kubecri or the kubelet.
func TestManyGPUsFail(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	watch(t)
	var neighbours []*corev1.Pod
	for i, node := range shared.Nodes {
		awaitGPUs(ctx, t, node.Name)
		pod := clustertest.On(node.Name, gpuPod(namespace, fmt.Sprintf("neighbour-%d", i), "Replace"))
		neighbours = append(neighbours, clustertest.RunPod(ctx, t, shared.Client, pod))
	}
	checked := clustertest.WatchForDoubles(t.Context(), shared.Client, namespace)
	replaced := times{}
	for i := range *failures {
		// The outcomes are four: each of them meets each program and none, XIDs and losses.
		outcome, turn := outcomes[i%len(outcomes)], i/len(outcomes)
		of := faultOf(i/2 + turn/2)
		name, kill := fmt.Sprintf("%d %s %s", i, outcome.name, of.name), (*cluster.Component)(nil)
		if (turn+i)%2 == 1 {
			node := shared.Nodes[0]
			kill = []*cluster.Component{shared.Scheduler, node.Kubecri, node.Kubelet}[i/2%3]
			name += " killing " + kill.Name
		}
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			pod := gpuPod(namespace, fmt.Sprintf("pod-%d", i), outcome.policy)
			if outcome.budget {
				clustertest.Protect(ctx, t, shared.Client, namespace, pod.Name)
			}
			began := time.Now()
			if outcome.replicated {
				pod = clustertest.RunReplica(ctx, t, shared.Client, pod)
			} else {
				pod = clustertest.RunPod(ctx, t, shared.Client, clustertest.On(shared.Nodes[0].Name, pod))
			}
			start := time.Since(began) // with the scheduler's part
			if outcome.budget {
				clustertest.AwaitProtected(ctx, t, shared.Client, namespace, pod.Labels["app"])
			}
			if outcome.ends {
				auditor.MayEnd(string(pod.UID))
			}
			began = time.Now()
			broken, repair := of.strike(ctx, t, pod)
			if kill == shared.Nodes[0].Kubecri && of.xid != 0 && pod.Spec.NodeName == shared.Nodes[0].Name {
				awaitSaid(ctx, t, pod.Spec.NodeName, broken, fmt.Sprint("Xid", of.xid)) // the driver says it once
			}
			if kill != nil {
				if err := kill.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
			pod = outcome.done(ctx, t, pod, broken, of)
			if outcome.policy == "Replace" {
				took := time.Since(began)
				replaced[kill != nil] = append(replaced[kill != nil], took)
				if kill == nil && took > replaceTimeout+start {
					t.Errorf("replaced after %v; it had been started in %v", took, start)
				}
			}
			for _, neighbour := range neighbours {
				clustertest.ExpectUntouched(ctx, t, shared.Client, neighbour)
			}
			repair(ctx)
			report(t)
			auditor.MayEnd(string(pod.UID)) // it is deleted
			if !outcome.replicated {        // a replica goes with its set
				clustertest.DeletePod(ctx, t, shared.Client, pod)
			}
		})
	}
	if err := checked(); err != nil {
		t.Error(err)
	}
	report(t)
	replaced.log(t)
}

// watch has the auditor watch until the test ends.
func watch(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { auditor.Watch(ctx) })
	t.Cleanup(func() { stop(); watching.Wait() })
}

// report fails the test unless the kernel has seen no GPU in two containers since the last report,
// and no container end that was to go on. It returns the containers that run, by ID.
func report(t *testing.T) map[string]audit.Container {
	t.Helper()
	found, running, err := auditor.Report()
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range slices.Concat(found.Shared, found.Ended) {
		t.Error(what)
	}
	return running
}

// gpuPod returns a pod whose only container, main, has one GPU and wants that when it fails.
func gpuPod(namespace, name, policy string) *corev1.Pod {
	pod := clustertest.IdlePod(namespace, name, map[corev1.ResourceName]int64{gpus: 1})
	pod.Annotations = clustertest.OnFailure(policy)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	pod.Spec.Containers[0].Env = []corev1.EnvVar{audit.NodeVariable()}
	return pod
}

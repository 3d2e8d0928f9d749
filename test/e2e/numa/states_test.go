// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

var (
	seed   = flag.Uint64("numa.seed", 5, "where the random states of nodes come from")
	states = flag.Int("numa.states", 50, "how many states to try, on all nodes together")
)

func TestGPUAndNICAreOnOneNUMANodeOrTheEventNamesWhatIsMissing(t *testing.T) {
	for i, n := range nodes {
		t.Run(n.Name, func(t *testing.T) {
			t.Parallel()
			ctx := begin(t, n)
			s := &scenario{n, rand.New(rand.NewPCG(*seed, uint64(i))), clustertest.Namespace(t, shared.Client)}
			outcomes := map[string]int{}
			for turn := range *states / len(nodes) {
				outcomes[s.try(ctx, t, turn)]++
				if t.Failed() {
					t.Fatalf("that was state %d of -numa.seed=%d: %s", turn, *seed, s.state())
				}
			}
			t.Logf("-numa.seed=%d: %v", *seed, outcomes)
			if outcomes[runs] < 5 || outcomes[waits] < 5 {
				t.Errorf("of the pods, these became of so many: %v; too few kinds of states were tried", outcomes)
			}
		})
	}
}

// What becomes of a pod.
const runs, waits = "runs", "waits"

// scenario is a node on which pods come and go and devices fail.
type scenario struct {
	*node
	random    *rand.Rand
	namespace string
}

// try brings the node into another state, lets a pod come that requests GPUs and NICs on one NUMA
// node, and says what became of it.
func (s *scenario) try(ctx context.Context, t *testing.T, turn int) string {
	t.Helper()
	s.change(ctx, t)
	s.mark(ctx, t, turn)
	requested := request{gpu: 1 + s.random.Int64N(2), nic: 1 + s.random.Int64N(3)}
	missing := s.missing(requested)
	before := map[corev1.ResourceName]int{}
	for resource := range requested {
		before[resource] = len(s.plugins[resource].allocated(t))
	}
	pod := clustertest.CreatePod(ctx, t, shared.Client, s.pod(turn, requested))
	if len(missing) > 0 {
		s.awaitRefusal(ctx, t, pod, missing)
		clustertest.DeletePod(ctx, t, shared.Client, pod)
		return waits
	}
	pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready", kube.Ready)
	allocated := s.allocated(t, pod, "main")
	if wrong := s.check(requested, allocated); wrong != "" {
		t.Errorf("pod %s: %s", pod.Name, wrong)
	}
	s.expectAllocated(ctx, t, pod, allocated, before)
	s.pods[pod] = allocated
	return runs
}

// change makes random devices unhealthy, replaces others by healthy ones, and lets random pods go.
func (s *scenario) change(ctx context.Context, t *testing.T) {
	t.Helper()
	var leave errgroup.Group
	for _, pod := range slices.SortedFunc(maps.Keys(s.pods),
		func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }) {
		if s.random.IntN(3) == 0 {
			leave.Go(func() error { return shared.Client.DeletePod(ctx, pod) })
			delete(s.pods, pod)
		}
	}
	s.setHealth(t, func(d *device) bool { return d.resource == fpga || s.random.IntN(4) > 0 })
	if err := leave.Wait(); err != nil {
		t.Fatal(err)
	}
	s.awaitDevices(ctx, t)
}

// marked is a label that says which state a node is in. A scheduler that places a pod which
// requests for it knows that state.
const marked = "example.com/state"

func (s *scenario) mark(ctx context.Context, t *testing.T, turn int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, marked, turn)
	if _, err := shared.Client.CoreV1().Nodes().Patch(ctx, s.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pod returns a pod for a node in a state, that prints which devices its container was allocated.
func (s *scenario) pod(turn int, requested request) *corev1.Pod {
	pod := clustertest.On(s.Name, clustertest.IdlePod(s.namespace, fmt.Sprintf("pod-%d", turn), requested))
	pod.Spec.NodeSelector[marked] = fmt.Sprint(turn)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30) // without it, the pod is gone before its container is
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "echo $GPU $NIC; " + clustertest.Idle[2]}
	var requests []string
	for name, count := range requested {
		requests = append(requests, fmt.Sprintf(`"numa/A/%s":%d`, strings.ReplaceAll(string(name), "/", ":"), count))
	}
	kube.SetRequests(pod, strings.Join(requests, ","))
	return pod
}

// awaitRefusal waits until a pod's event names something of what is missing.
func (s *scenario) awaitRefusal(ctx context.Context, t *testing.T, pod *corev1.Pod, missing []string) {
	t.Helper()
	clustertest.AwaitPod(ctx, t, shared.Client, pod, fmt.Sprintf("to be rejected with %q", missing),
		func(pod *corev1.Pod) bool {
			if kube.Scheduled(pod) {
				t.Errorf("pod %s was bound, but has to be rejected with %q", pod.Name, missing)
				return true
			}
			return kube.Unschedulable(pod) && slices.ContainsFunc(missing, func(text string) bool {
				return slices.ContainsFunc(pod.Status.Conditions,
					func(c corev1.PodCondition) bool { return strings.Contains(c.Message, text) })
			})
		})
}

// allocated returns the devices that a pod's annotation says a container was allocated, in the
// order in which the node reports.
func (n *node) allocated(t *testing.T, pod *corev1.Pod, container string) []*device {
	t.Helper()
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Collect(maps.Values(allocation.RunningContainers[container].AllocateFrom))
	var allocated []*device
	for _, d := range n.devices {
		if slices.Contains(names, d.name()) {
			allocated = append(allocated, d)
		}
	}
	if len(allocated) != len(names) {
		t.Fatalf("container %s of pod %s was allocated %s, and of these node %s has %v", container, pod.Name, names,
			n.Name, allocated)
	}
	return allocated
}

// expectAllocated makes sure that the plugins allocated the pod's devices once and nothing
// else since that many calls, and that its container has them.
func (n *node) expectAllocated(ctx context.Context, t *testing.T, pod *corev1.Pod, allocated []*device,
	before map[corev1.ResourceName]int) {
	t.Helper()
	ids := map[corev1.ResourceName][]string{}
	for _, d := range allocated {
		ids[d.resource] = append(ids[d.resource], d.id)
	}
	var fields []string
	for _, resource := range slices.Sorted(maps.Keys(before)) {
		var calls [][]string
		for _, call := range n.plugins[resource].allocated(t)[before[resource]:] {
			fields = append(fields, call)
			calls = append(calls, slices.Sorted(slices.Values(strings.Split(call, ","))))
		}
		slices.Sort(ids[resource])
		if diff := cmp.Diff([][]string{ids[resource]}, calls); diff != "" {
			t.Errorf("devices of %s for pod %s (-chosen +requested in each call of Allocate):\n%s", resource,
				pod.Name, diff)
		}
	}
	if diff := cmp.Diff(fields, strings.Fields(n.printed(ctx, t, pod))); diff != "" {
		t.Errorf("devices of pod %s (-allocated +in the container):\n%s", pod.Name, diff)
	}
}

// printed returns the line that the container main of a pod begins with.
func (n *node) printed(ctx context.Context, t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	var line string
	clustertest.Await(ctx, t, "pod "+pod.Name+" to print a line", func() bool {
		printed, err := shared.Client.Logs(ctx, pod, "main")
		if err != nil {
			t.Fatal(err)
		}
		first, rest, ended := strings.Cut(printed, "\n")
		line = first
		return ended && rest == ""
	})
	return line
}

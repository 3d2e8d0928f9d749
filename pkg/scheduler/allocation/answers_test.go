// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// pure is a fake that says that it is pure.
type pure struct{ *fake }

func (pure) Pure() bool { return true }

// translator is a fake that only translates, in a way that changes with its revision.
type translator struct {
	*fake
	revision atomic.Uint64
}

func (t *translator) Revision() uint64 { return t.revision.Load() }

// counting counts the calls of a fake's fit.
func counting(f *fake) (*fake, *atomic.Int64) {
	calls, fit := &atomic.Int64{}, f.fit
	f.fit = func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		calls.Add(1)
		return fit(node, pod)
	}
	return f, calls
}

// nodeLike returns a node of free GPUs that are called otherwise on each node, and of which some
// memory is in use.
func nodeLike(t *testing.T, s *Set, name string, gpus int, used int64) *Node {
	t.Helper()
	info := listing(name, "nvidia.com/gpu")
	for i := range gpus {
		device := fmt.Sprintf("gpu/%s-%d", name, i)
		resource.AddGroupResource(info.Allocatable, device+"/cards", 1)
		resource.AddGroupResource(info.Allocatable, device+"/memory", 100)
		if used > 0 {
			resource.AddGroupResource(info.Used, device+"/memory", used)
		}
	}
	return NodeOf(t, s, info)
}

// A plugin that looks at all that it is given says the same with and without a memory, and so does
// one behind it.
func TestRememberedAnswersAreThoseThatThePluginGives(t *testing.T) {
	// whim depends on the pod's containers, on what the plugins before wrote, and on what the node
	// has and what is used.
	whim := func() *fake {
		f := gpus()
		translate := f.fit
		f.fit = func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			var used int64
			for _, quantity := range node.Used {
				used += quantity
			}
			if (used+int64(len(node.Allocatable)))%5 == 0 {
				return false, []devicescheduler.PredicateFailureReason{because(fmt.Sprintf("%d are used", used))}, 0
			}
			translate(node, pod)
			for name, container := range pod.RunningContainers {
				resource.AddGroupResource(container.DevRequests, "gpu/0/memory", int64(len(container.DevRequests)))
				pod.RunningContainers[name] = container
			}
			return true, nil, float64(used) / 1000
		}
		return f
	}
	last := func() *fake {
		return &fake{name: "last", fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			return true, nil, float64(len(pod.RunningContainers["main"].DevRequests)) / 10
		}}
	}
	first, calls := counting(whim())
	remembering := set(t, clock.RealClock{}, pure{first}, pure{last()})
	asking := set(t, clock.RealClock{}, whim(), last())

	random := rand.New(rand.NewPCG(1, 2))
	const rounds = 2000
	for i := range rounds {
		name, gpus, used, count := fmt.Sprint("n", random.IntN(3)), random.IntN(4), int64(random.IntN(3)),
			1+random.Int64N(3)
		request := func() *request.Request {
			return &request.Request{
				Pod: &types.PodInfo{Name: fmt.Sprint("p", i), RunningContainers: map[string]types.ContainerInfo{
					"main": {KubeRequests: types.ResourceList{"nvidia.com/gpu": count}},
				}},
				Containers: []grouptree.Container{{Name: "main"}},
			}
		}
		got, err := remembering.Fit(t.Context(), nodeLike(t, remembering, name, gpus, used), request())
		want, wantErr := asking.Fit(t.Context(), nodeLike(t, asking, name, gpus, used), request())
		if err != nil || wantErr != nil {
			t.Fatal(err, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d: %d of %d GPUs, %d used (-asked +remembered):\n%s", i, count, gpus, used, diff)
		}
	}
	if n := calls.Load(); n > 3*4*3*3 {
		t.Errorf("the plugin was asked %d times in %d rounds, more often than there are different questions", n, rounds)
	}
}

// retranslationCounter counts how often pods were scheduled again.
type retranslationCounter int

func (c *retranslationCounter) Requeue() { *c++ }

func TestATranslatorIsCalledOnceForAllNodesThatAreBuiltAlike(t *testing.T) {
	plugin := &translator{}
	var calls *atomic.Int64
	plugin.fake, calls = counting(gpus())
	s := set(t, clock.RealClock{}, plugin)
	retranslations := retranslationCounter(0)
	s.OnRetranslation(&retranslations)
	var nodes []*Node
	for i := range 10 {
		nodes = append(nodes, nodeLike(t, s, fmt.Sprint("n", i), 2, int64(i)))
	}
	everywhere := func() {
		t.Helper()
		for _, node := range nodes {
			if verdict, err := s.Fit(t.Context(), node, requestFor(2)); err != nil || !verdict.Fits {
				t.Fatal(verdict, err)
			}
		}
	}
	everywhere()
	everywhere()
	if n := calls.Load(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}

	plugin.revision.Add(1) // as the next node shows
	nodes = append(nodes, nodeLike(t, s, "other", 3, 0))
	everywhere()
	if n := calls.Load(); n != 3 || retranslations != 1 {
		t.Errorf("%d calls, want one more for each of two kinds of nodes; %d retranslations, want 1", n, retranslations)
	}
}

// What a translator allocates is its translation: it is asked once for pods that request the same,
// and each pod gets its own devices under its own name.
func TestATranslatorAllocatesOnceForPodsThatRequestTheSame(t *testing.T) {
	plugin := &translator{fake: gpus()}
	calls, allocate := 0, plugin.allocate
	plugin.allocate = func(node *types.NodeInfo, pod *types.PodInfo) error {
		calls++
		return allocate(node, pod)
	}
	s := set(t, clock.RealClock{}, plugin)
	give := func(pod, node string, count int64, used int64) *types.PodInfo {
		t.Helper()
		request := requestFor(count)
		request.Pod.Name = pod
		passed, err := s.Allocate(t.Context(), nodeLike(t, s, node, 2, used), request)
		if err != nil {
			t.Fatal(err)
		}
		return passed
	}
	first := give("first", "a", 1, 0)
	second := give("second", "b", 1, 50)
	for pod, want := range map[*types.PodInfo][3]string{first: {"first", "a", "a-1"}, second: {"second", "b", "b-1"}} {
		from := pod.RunningContainers["main"].AllocateFrom["resource/group/gpu/0/cards"]
		device := types.ResourceName("resource/group/gpu/" + want[2] + "/cards")
		if pod.Name != want[0] || pod.NodeName != want[1] || from != device {
			t.Errorf("pod %s on %s has %s, want pod %s on %s with %s", pod.Name, pod.NodeName, from, want[0],
				want[1], device)
		}
	}
	if calls != 1 {
		t.Errorf("asked %d times, want once", calls)
	}
	give("third", "a", 2, 0)
	if calls != 2 {
		t.Errorf("asked %d times, want once more for a pod that requests something else", calls)
	}
	plugin.revision.Add(1) // as the next node shows
	give("fourth", "c", 1, 0)
	if calls != 3 {
		t.Errorf("asked %d times, want once more after the translation has changed", calls)
	}
	first.RunningContainers["main"].DevRequests["resource/group/gpu/9/cards"] = 1
	if n := len(give("fifth", "c", 1, 0).RunningContainers["main"].DevRequests); n != 1 {
		t.Errorf("a pod was given %d devices, want 1: it shares them with another", n)
	}
}

func TestOthersAreCalledEachTime(t *testing.T) {
	plugin, calls := counting(gpus())
	s := set(t, clock.RealClock{}, plugin)
	node := nodeLike(t, s, "n", 2, 0)
	for range 3 {
		if _, err := s.Fit(t.Context(), node, requestFor(1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	if s.Predictable() {
		t.Error("the set says that its answers are predictable")
	}
}

// A plugin that is quarantined gives no answer, also where one is cached, and comes back when it
// answers.
func TestCachedAnswersOfAQuarantinedPluginAreNotUsed(t *testing.T) {
	plugin := pure{gpus()}
	fails := false
	fit := plugin.fit
	plugin.fit = func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		if fails {
			panic("ouch")
		}
		return fit(node, pod)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	s := set(t, clk, plugin)
	node := nodeLike(t, s, "n", 4, 0)
	answers := func(count int64) bool {
		verdict, err := s.Fit(t.Context(), node, requestFor(count))
		return err == nil && verdict.Fits
	}
	if !answers(1) {
		t.Fatal("there is no answer to begin with")
	}
	fails = true
	if answers(2) {
		t.Error("an answer from a plugin that panics")
	}
	if answers(1) {
		t.Error("the remembered answer counts although the plugin is quarantined")
	}
	fails = false
	clk.Step(firstBackOff)
	if !answers(1) || !answers(2) {
		t.Error("the plugin does not come back")
	}
}

// Two pods request the same: what is remembered of the first does not hand its name to the plugins
// behind.
func TestARememberedAnswerIsThePodsOwn(t *testing.T) {
	var names []string
	behind := &fake{name: "behind", fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		names = append(names, pod.Name)
		return true, nil, 0
	}}
	s := set(t, clock.RealClock{}, pure{gpus()}, behind)
	node := nodeLike(t, s, "n", 2, 0)
	for _, name := range []string{"first", "second"} {
		request := requestFor(1)
		request.Pod.Name = name
		if _, err := s.Fit(t.Context(), node, request); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"first", "second"}, names); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// because is a reason that is nothing but its text.
type because string

func (b because) GetReason() string { return string(b) }
func (because) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return "", 0, 0, 0
}

// Nodes of equal shape share placements, but a device that was chosen before is on one of them
// only.
func TestAPinnedRequestIsPlacedOnEachNode(t *testing.T) {
	translate := func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		const request, device = "resource/group/gpu/0/cards", "resource/group/gpu/a-0/cards"
		pod.RunningContainers["main"] = types.ContainerInfo{
			DevRequests: types.ResourceList{request: 1}, AllocateFrom: types.ResourceLocation{request: device},
		}
		return true, nil, 0
	}
	s := set(t, clock.RealClock{}, &translator{fake: &fake{groups: true, fit: translate}})
	for range 2 {
		for name, want := range map[string]bool{"a": true, "b": false} {
			verdict, err := s.Fit(t.Context(), nodeLike(t, s, name, 2, 0), requestFor(1))
			if err != nil || verdict.Fits != want {
				t.Errorf("node %s: %+v, error %v, want that fits is %v", name, verdict, err, want)
			}
		}
	}
}

func TestCachesCountWhatTheyDo(t *testing.T) {
	s := set(t, clock.RealClock{}, &translator{fake: gpus()})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.Fit(t.Context(), nodeLike(t, s, name, 2, 0), requestFor(1)); err != nil {
			t.Fatal(err)
		}
	}
	stats := s.CacheStats()
	for _, name := range []string{"plugin_fits", "placements"} {
		if got := stats[name]; got.Hits != 2 || got.Misses != 1 || got.Entries != 1 {
			t.Errorf("%s: %+v, want that two of three equal nodes are found", name, got)
		}
	}
}

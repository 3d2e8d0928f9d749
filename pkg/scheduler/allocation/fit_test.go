// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestPluginsAreCalledInOrderAndEachSeesWhatTheOnesBeforeWrote(t *testing.T) {
	var asked []string
	named := func(name string) *fake {
		write := func(pod *types.PodInfo) {
			container := pod.RunningContainers["main"]
			asked = append(asked, name+" sees "+join(keys(container.DevRequests)))
			container.DevRequests = types.ResourceList{types.ResourceName("by-" + name): 1}
			container.Scorer = types.ResourceScorer{types.ResourceName("by-" + name): 1}
			pod.RunningContainers["main"] = container
		}
		return &fake{
			name: name,
			fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
				write(pod)
				return true, nil, 0
			},
			allocate: func(_ *types.NodeInfo, pod *types.PodInfo) error { write(pod); return nil },
		}
	}
	s := set(t, clock.RealClock{}, named("b"), named("a"))
	node := nodeWith(t, s, 0)
	if _, err := s.Fit(t.Context(), node, requestFor(1)); err != nil {
		t.Fatal(err)
	}
	got, err := s.Allocate(t.Context(), node, requestFor(1))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"b sees ", "a sees by-b", "b sees ", "a sees by-b"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	wrote := types.ContainerInfo{
		KubeRequests: types.ResourceList{"nvidia.com/gpu": 1},
		DevRequests:  types.ResourceList{"by-a": 1}, Scorer: types.ResourceScorer{"by-a": 1},
	}
	if diff := cmp.Diff(wrote, got.RunningContainers["main"], cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("allocation (-want +got):\n%s", diff)
	}
}

func keys(list types.ResourceList) []types.ResourceName {
	var names []types.ResourceName
	for name := range list {
		names = append(names, name)
	}
	return names
}

func TestTheGroupSchedulerRunsLastAndPlacesWhatPluginsTranslated(t *testing.T) {
	s := set(t, clock.RealClock{}, gpus())
	node := nodeWith(t, s, 2)
	for count, want := range map[int64]Verdict{
		1: {Fits: true, Score: 0.5},
		2: {Fits: true, Score: 1},
		3: {Unresolvable: true, Shortage: &grouptree.Reason{
			Cause: grouptree.Insufficient, Container: "main", Request: "resource/group/gpu/0/cards",
			Device: "gpu", Resource: "cards",
			Countable: true, Needed: 3, Best: 2, Total: 2, Free: 2, Capacity: 2,
		}},
	} {
		got, err := s.Fit(t.Context(), node, requestFor(count))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d GPUs (-want +got):\n%s", count, diff)
		}
	}
	allocation, err := s.Allocate(t.Context(), node, requestFor(2))
	if err != nil {
		t.Fatal(err)
	}
	want := &types.PodInfo{Name: "p", NodeName: "n", RunningContainers: map[string]types.ContainerInfo{"main": {
		KubeRequests: types.ResourceList{"nvidia.com/gpu": 2},
		DevRequests:  types.ResourceList{"resource/group/gpu/0/cards": 1, "resource/group/gpu/1/cards": 1},
		AllocateFrom: types.ResourceLocation{
			"resource/group/gpu/0/cards": "resource/group/gpu/GPU-1/cards",
			"resource/group/gpu/1/cards": "resource/group/gpu/GPU-0/cards",
		},
	}}}
	if diff := cmp.Diff(want, allocation, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("allocation (-want +got):\n%s", diff)
	}
}

func TestAFullNodeIsWorthPreempting(t *testing.T) {
	s := set(t, clock.RealClock{}, gpus())
	empty := nodeWith(t, s, 2)
	first, err := s.Allocate(t.Context(), empty, requestFor(2))
	if err != nil {
		t.Fatal(err)
	}
	full, err := s.Node(t.Context(), empty.inventory, []*Holder{NewHolder("u", first, requestFor(2).Containers)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Fit(t.Context(), full, requestFor(1))
	if err != nil {
		t.Fatal(err)
	}
	if got.Fits || got.Unresolvable || got.Shortage.String() != "have no free gpu" {
		t.Errorf("verdict %+v, want that there is no free GPU now", got)
	}
}

func TestScoresAreAMeanOfThoseWhoVote(t *testing.T) {
	for name, test := range map[string]struct {
		scores []float64
		want   float64
	}{
		"one":                   {[]float64{0.25}, 0.25},
		"two add up":            {[]float64{0.25, 0.75}, 0.5},
		"more than 1 counts 1":  {[]float64{7, 0}, 0.5},
		"less than 0 counts 0":  {[]float64{-7, 1}, 0.5},
		"not a number counts 0": {[]float64{math.NaN(), 1}, 0.5},
		"infinity counts 1":     {[]float64{math.Inf(1), 0}, 0.5},
		"-infinity counts 0":    {[]float64{math.Inf(-1), 1}, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			var plugins []devicescheduler.DeviceScheduler
			for _, score := range test.scores {
				plugins = append(plugins, &fake{fit: serve(score)})
			}
			s := set(t, clock.RealClock{}, plugins...)
			got, err := s.Fit(t.Context(), nodeWith(t, s, 0), requestFor(1))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Verdict{Fits: true, Score: test.want}, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasonsOfAPluginAreGivenShort(t *testing.T) {
	var long reasons
	for range 100_000 {
		long = append(long, resource.NewInsufficientResourceError(types.ResourceName(strings.Repeat("é", 1000)), 1, 0,
			0))
	}
	for name, test := range map[string]struct {
		reasons reasons
		want    []string
	}{
		"its own words": {
			reasons{resource.NewInsufficientResourceError("example.com/fpga", 1, 0, 0)},
			[]string{"Insufficient example.com/fpga"},
		},
		"none": {nil, []string{`device scheduler "f0" gives no reason`}},
		"very many and long": {long, []string{
			"Insufficient " + strings.Repeat("é", 121), "Insufficient " + strings.Repeat("é", 121),
			"Insufficient " + strings.Repeat("é", 121), "Insufficient " + strings.Repeat("é", 121),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t, clock.RealClock{}, &fake{fit: func(*types.NodeInfo, *types.PodInfo) (bool, reasons, float64) {
				return false, test.reasons, 1
			}})
			got, err := s.Fit(t.Context(), nodeWith(t, s, 0), requestFor(1))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Verdict{Reasons: test.want}, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPodThatNoSchedulerServesDoesNotFit(t *testing.T) {
	devRequest := func(container string, quantity int64) *fake {
		write := func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			info := pod.RunningContainers[container]
			info.DevRequests = types.ResourceList{"resource/group/gpu/0/cards": quantity}
			pod.RunningContainers[container] = info
			return true, nil, 0
		}
		return &fake{fit: write, allocate: func(node *types.NodeInfo, pod *types.PodInfo) error {
			write(node, pod)
			return nil
		}}
	}
	two := func(a, b types.ContainerInfo) *request.Request {
		return &request.Request{
			Pod:        &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"a": a, "b": b}},
			Containers: []grouptree.Container{{Name: "a"}, {Name: "b"}},
		}
	}
	memory := types.ContainerInfo{Requests: types.ResourceList{"gpu/0/memory": 1}}
	how := types.ContainerInfo{Requests: types.ResourceList{"gpu/gpu-generate-topology": 1}}
	for name, test := range map[string]struct {
		plugins []devicescheduler.DeviceScheduler
		request *request.Request
		want    string
	}{
		"there are no plugins": {nil, requestFor(1), `no device scheduler serves nvidia.com/gpu of container "main"`},
		"its plugin is not loaded": {
			[]devicescheduler.DeviceScheduler{devRequest("a", 1)},
			two(types.ContainerInfo{KubeRequests: types.ResourceList{"x/a": 1}},
				types.ContainerInfo{KubeRequests: types.ResourceList{"x/b": 1, "x/c": 1, "x/kubelets": 1}}),
			`no device scheduler serves x/b, x/c of container "b"`,
		},
		"a request is not understood": {
			[]devicescheduler.DeviceScheduler{devRequest("a", 1)}, two(memory, memory),
			`no device scheduler serves gpu/0/memory of container "b"`,
		},
		"a request is for nothing": {
			[]devicescheduler.DeviceScheduler{devRequest("a", 0)},
			two(memory, types.ContainerInfo{}), `container "a" requests 0 of resource/group/gpu/0/cards`,
		},
		"it says how, but not what": {
			[]devicescheduler.DeviceScheduler{&fake{}}, two(how, how),
			"no device scheduler makes a device of the requests gpu/gpu-generate-topology",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t, clock.RealClock{}, test.plugins...)
			node := nodeWith(t, s, 1)
			got, err := s.Fit(t.Context(), node, test.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Verdict{Reasons: []string{test.want}, Unresolvable: true}, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if _, err := s.Allocate(t.Context(), node, test.request); err == nil || err.Error() != test.want {
				t.Errorf("allocate: error %v, want %s", err, test.want)
			}
		})
	}
}

func TestAGroupRequestThatIsNotPlacedIsNotAllocated(t *testing.T) {
	plugin := gpus()
	plugin.groups = false
	s := set(t, clock.RealClock{}, plugin)
	_, err := s.Allocate(t.Context(), nodeWith(t, s, 1), requestFor(1))
	const want = `no device scheduler places resource/group/gpu/0/cards of container "main"`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestAPodThatRequestsNothingFitsAndHoldsNothing(t *testing.T) {
	s := set(t, clock.RealClock{}, &fake{
		fit: func(*types.NodeInfo, *types.PodInfo) (bool, reasons, float64) {
			t.Error("a plugin was called")
			return false, nil, 0
		},
	})
	node := nodeWith(t, s, 1)
	request := &request.Request{Pod: &types.PodInfo{Name: "p"}, Forged: true}
	verdict, err := s.Fit(t.Context(), node, request)
	if err != nil || !verdict.Fits {
		t.Errorf("fit: %v, error %v", verdict, err)
	}
	allocation, err := s.Allocate(t.Context(), node, request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&types.PodInfo{Name: "p", NodeName: "n"}, allocation, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("allocation (-want +got):\n%s", diff)
	}
}

func TestAnEnumRequestIsMetByAnyOfItsBitsAndNeverUsesThemUp(t *testing.T) {
	translate := func(pod *types.PodInfo) {
		pod.RunningContainers["main"] = types.ContainerInfo{
			DevRequests: types.ResourceList{"resource/group/nic/0/enumMode": 0b0110},
		}
	}
	s := set(t, clock.RealClock{}, &fake{
		groups: true,
		fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			translate(pod)
			return true, nil, 0
		},
		allocate: func(_ *types.NodeInfo, pod *types.PodInfo) error { translate(pod); return nil },
	})
	info := listing("n", "nvidia.com/gpu")
	info.Allocatable = types.ResourceList{"resource/group/nic/a/enumMode": 0b1000,
		"resource/group/nic/b/enumMode": 0b0010}
	inventory, err := s.AddNode(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	var holders []*Holder
	for range 3 {
		node, err := s.Node(t.Context(), inventory, holders)
		if err != nil {
			t.Fatal(err)
		}
		allocation, err := s.Allocate(t.Context(), node, requestFor(1))
		if err != nil {
			t.Fatal(err)
		}
		want := types.ResourceLocation{"resource/group/nic/0/enumMode": "resource/group/nic/b/enumMode"}
		if diff := cmp.Diff(want, allocation.RunningContainers["main"].AllocateFrom); diff != "" {
			t.Errorf("allocation (-want +got):\n%s", diff)
		}
		holders = append(holders, NewHolder("u", allocation, nil))
	}
}

func TestAnErrorOfAPluginIsItsAnswer(t *testing.T) {
	s := set(t, clock.RealClock{}, &fake{
		name: "x", allocate: func(*types.NodeInfo, *types.PodInfo) error { return errors.New("no") },
	})
	_, err := s.Allocate(t.Context(), nodeWith(t, s, 1), requestFor(1))
	if want := `device scheduler "x": PodAllocate: no`; err == nil || err.Error() != want ||
		errors.Is(err, pluginhost.ErrNoAnswer) {
		t.Errorf("error %v, want %s, which is an answer", err, want)
	}
}

func TestNodesThatLookTheSameShareTheReason(t *testing.T) {
	s := set(t, clock.RealClock{}, gpus())
	request := requestFor(3)
	lack := func(name string, gpus int) *grouptree.Reason {
		verdict, err := s.Fit(t.Context(), nodeLike(t, s, name, gpus, 0), request)
		if err != nil || verdict.Fits {
			t.Fatalf("verdict %+v, error %v", verdict, err)
		}
		return verdict.Shortage
	}
	if lack("a", 2) != lack("b", 2) {
		t.Error("two nodes that look the same were explained one by one")
	}
	if a, other := lack("a", 2), lack("c", 1); a.Best != 2 || other.Best != 1 {
		t.Errorf("reasons %v and %v, want those of 2 and of 1 free GPUs", a, other)
	}
}

func TestPodsThatRequestTheSameAreCompiledOnce(t *testing.T) {
	plugin := &translator{fake: gpus()}
	s := set(t, clock.RealClock{}, plugin)
	first, second := requestFor(2), requestFor(2)
	second.Pod.Name = "q"
	compiled := func(request *request.Request, node string) *grouptree.Request {
		t.Helper()
		if verdict, err := s.Fit(t.Context(), nodeLike(t, s, node, 2, 0), request); err != nil || !verdict.Fits {
			t.Fatal(verdict, err)
		}
		on := nodeLike(t, s, node, 2, 0)
		answer, ok := s.plugins[0].fits.Get(s.plugins[0].key(on, s.partOf(request, on.inventory)))
		if !ok {
			t.Fatal("the plugin's answer is not cached")
		}
		return s.remainder(answer.next).request
	}
	if compiled(first, "a") != compiled(second, "b") {
		t.Error("the second was compiled again")
	}
}

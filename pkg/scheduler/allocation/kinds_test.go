// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// specialist is a device scheduler of one level, whose devices are counted as a plain resource. It
// counts its calls, and panics while it is broken.
type specialist struct {
	*fake
	plain  types.ResourceName
	broken bool
	calls  int
}

func (s *specialist) Kinds() devicescheduler.Kinds {
	return devicescheduler.Kinds{Plain: []types.ResourceName{s.plain}, Levels: []string{s.name}}
}

// newSpecialist returns the specialist of a level.
func newSpecialist(level string) *specialist {
	s := &specialist{plain: types.ResourceName("example.com/" + level)}
	called := func() {
		s.calls++
		if s.broken {
			panic("ouch")
		}
	}
	translate := func(pod *types.PodInfo) {
		called()
		for name, container := range pod.RunningContainers {
			if container.DevRequests == nil {
				container.DevRequests = types.ResourceList{}
			}
			for i := range container.KubeRequests[s.plain] {
				resource.AddGroupResource(container.DevRequests, fmt.Sprintf("%s/%d/cards", level, i), 1)
			}
			pod.RunningContainers[name] = container
		}
	}
	s.fake = &fake{
		name: level, groups: true,
		add: func(*types.NodeInfo) { called() },
		fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			translate(pod)
			return true, nil, 0
		},
		allocate: func(_ *types.NodeInfo, pod *types.PodInfo) error { translate(pod); return nil },
		take:     func(*types.NodeInfo, *types.PodInfo) error { called(); return nil },
	}
	return s
}

// oneOf returns the request for one device of each of these levels.
func oneOf(levels ...string) *request.Request {
	list := types.ResourceList{"cpu": 1}
	for _, level := range levels {
		list[types.ResourceName("example.com/"+level)] = 1
	}
	return &request.Request{
		Pod: &types.PodInfo{
			Name: "p", RunningContainers: map[string]types.ContainerInfo{"main": {KubeRequests: list}},
		},
		Containers: []grouptree.Container{{Name: "main"}},
	}
}

// mixed returns the inventory of a node with two GPUs and two FPGAs.
func mixed(t *testing.T, s *Set) *Inventory {
	t.Helper()
	info := listing("n", "example.com/gpu", "example.com/fpga")
	for _, device := range []string{"gpu/a", "gpu/b", "fpga/a", "fpga/b"} {
		resource.AddGroupResource(info.Allocatable, device+"/cards", 1)
	}
	inventory, err := s.AddNode(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

func TestASpecialistThatIsQuarantinedKeepsOnlyItsOwnPodsWaiting(t *testing.T) {
	gpus, fpgas := newSpecialist("gpu"), newSpecialist("fpga")
	clk := clocktesting.NewFakeClock(time.Now())
	s := set(t, clk, gpus, fpgas)
	inventory := mixed(t, s)
	empty, err := s.Node(t.Context(), inventory, nil)
	if err != nil {
		t.Fatal(err)
	}
	allocation, err := s.Allocate(t.Context(), empty, oneOf("gpu", "fpga"))
	if err != nil {
		t.Fatal(err)
	}
	holders := []*Holder{NewHolder("u", allocation, oneOf().Containers)}
	verdicts := func(what string, inventory *Inventory, want map[string]bool) {
		t.Helper()
		node, err := s.Node(t.Context(), inventory, holders)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for name, request := range map[string]*request.Request{
			"gpu": oneOf("gpu"), "fpga": oneOf("fpga"), "both": oneOf("gpu", "fpga"),
		} {
			verdict, err := s.Fit(t.Context(), node, request)
			_, allocateErr := s.Allocate(t.Context(), node, request)
			got[name] = err == nil && verdict.Fits
			if got[name] != (allocateErr == nil) ||
				!got[name] && !(errors.Is(err, pluginhost.ErrNoAnswer) &&
					errors.Is(allocateErr, pluginhost.ErrNoAnswer)) {
				t.Errorf("%s, %s: Fit says %v, %v; Allocate says %v", what, name, verdict, err, allocateErr)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	all := map[string]bool{"gpu": true, "fpga": true, "both": true}
	gpusOnly := map[string]bool{"gpu": true, "fpga": false, "both": false}
	verdicts("both work", inventory, all)

	fpgas.broken = true
	for range 3 {
		verdicts("one is broken", inventory, gpusOnly)
	}
	clk.Step(lastBackOff)
	partly := mixed(t, s)
	if partly.Complete() {
		t.Error("an inventory that a plugin did not get says that it is whole")
	}
	fpgas.broken = false
	clk.Step(lastBackOff)
	verdicts("it works, but does not know the node", partly, gpusOnly)
	verdicts("it works again", mixed(t, s), all)
}

func TestASpecialistIsNotCalledForOthersPods(t *testing.T) {
	gpus, fpgas := newSpecialist("gpu"), newSpecialist("fpga")
	s := set(t, clocktesting.NewFakeClock(time.Now()), gpus, fpgas)
	inventory := mixed(t, s)
	node, err := s.Node(t.Context(), inventory, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := fpgas.calls
	allocation, err := s.Allocate(t.Context(), node, oneOf("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Node(t.Context(), inventory, []*Holder{NewHolder("u", allocation, oneOf().Containers)}); err != nil {
		t.Fatal(err)
	}
	if fpgas.calls != before {
		t.Errorf("the FPGAs' scheduler was called %d times for a pod with a GPU", fpgas.calls-before)
	}
}

// A plugin that is no specialist may look at everything: where a part of a node is missing, its
// answer would be wrong.
func TestOneThatIsNoSpecialistMakesAllPodsWaitForEachOther(t *testing.T) {
	gpus, fpgas := newSpecialist("gpu"), newSpecialist("fpga")
	s := set(t, clocktesting.NewFakeClock(time.Now()), gpus, fpgas, &fake{name: "nosy"})
	inventory := mixed(t, s)
	node, err := s.Node(t.Context(), inventory, nil)
	if err != nil {
		t.Fatal(err)
	}
	allocation, err := s.Allocate(t.Context(), node, oneOf("fpga"))
	if err != nil {
		t.Fatal(err)
	}
	fpgas.broken = true
	holders := []*Holder{NewHolder("u", allocation, oneOf().Containers)}
	if _, err := s.Node(t.Context(), inventory, holders); !errors.Is(err, pluginhost.ErrNoAnswer) {
		t.Errorf("error %v, want that there is no answer", err)
	}
}

// The domains of these names have no dot. That of the option is a level of the specialist.
func TestAnOptionOfASpecialistIsNoCount(t *testing.T) {
	s := set(t, clocktesting.NewFakeClock(time.Now()), newSpecialist("gpu"), newSpecialist("fpga"))
	node, err := s.Node(t.Context(), mixed(t, s), nil)
	if err != nil {
		t.Fatal(err)
	}
	for written, want := range map[types.ResourceName]bool{"fpga/fast": true, "camera/video0": false} {
		request := oneOf("fpga")
		info := request.Pod.RunningContainers["main"]
		info.Requests = types.ResourceList{written: 1}
		request.Pod.RunningContainers["main"] = info
		if verdict, err := s.Fit(t.Context(), node, request); err != nil || verdict.Fits != want {
			t.Errorf("%s: %+v, %v", written, verdict, err)
		}
	}
}

func TestKindsAreDistinguishedByNames(t *testing.T) {
	k := newKinds(devicescheduler.Kinds{Plain: []types.ResourceName{"example.com/gpu"},
		Levels: []string{"gpu", "pair"}})
	for name, want := range map[types.ResourceName]bool{
		"example.com/gpu":                      true,
		"example.com/gpus":                     false,
		"cpu":                                  false,
		"gpu":                                  false,
		"gpu/a/cards":                          true,
		"resource/group/gpu/a/cards":           true,
		"resource/group/pair/0/nic/a/ports":    true,
		"resource/group/board/gpu/nic/a/ports": false, // an instance that is called gpu
		"resource/group/board/0/gpu":           false, // a resource that is
		"gpu/gpu-generate-topology":            true,
		"resource/group":                       false,
		"":                                     false,
	} {
		if got := k.has(name); got != want {
			t.Errorf("%q is of these kinds: %v, want %v", name, got, want)
		}
	}
}

func TestDevicesAreLikeWhatThePodRequests(t *testing.T) {
	s := set(t, clocktesting.NewFakeClock(time.Now()), newSpecialist("gpu"), newSpecialist("fpga"))
	const gpu = "resource/group/slot/0/gpu/a/cards"
	part := &request.Request{Pod: &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
		"main": {Requests: types.ResourceList{"gpu/a/memory": 5}},
	}}}
	for name, test := range map[string]struct {
		request *request.Request
		want    bool
	}{"counted": {oneOf("gpu"), true}, "a part": {part, true}, "another's": {oneOf("fpga"), false}} {
		if got := s.RequestsLike(test.request, gpu); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if s.RequestsLike(test.request, "resource/group/disk/0/size") {
			t.Errorf("%s: it requests what no plugin serves", name)
		}
	}
}

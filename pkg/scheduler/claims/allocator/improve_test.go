// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/selector"
)

const driver = "gpu.example.com"

var options = Options{
	Features: structured.Features{ConsumableCapacity: true, PartitionableDevices: true},
	Levels:   []resourceapi.FullyQualifiedName{driver + "/root", driver + "/socket"},
}

// places are where a node's devices are: the root and the socket of each, "" for one of which the
// driver says nothing, and whether it is allocated.
type place struct {
	root, socket string
	held         bool
}

func nodeOf(t *testing.T, places []place) (*pool.Node, Allocated) {
	t.Helper()
	slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: ptr.To("n"), Pool: resourceapi.ResourcePool{Name: "n", ResourceSliceCount: 1},
	}}
	held := map[structured.DeviceID]bool{}
	for i, at := range places {
		device := resourceapi.Device{
			Name: fmt.Sprint(i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		}
		for name, text := range map[resourceapi.QualifiedName]string{"root": at.root, "socket": at.socket} {
			if text != "" {
				device.Attributes[name] = resourceapi.DeviceAttribute{StringValue: ptr.To(text)}
			}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
		held[structured.MakeDeviceID(driver, "n", device.Name)] = at.held
	}
	index := pool.NewInventory(options.Features).Update([]*resourceapi.ResourceSlice{slice})
	node, err := index.Node(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	return node, func(id structured.DeviceID) bool { return held[id] }
}

// noClasses has one class, of all devices.
type noClasses struct{}

func (noClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != "gpu" {
		return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
	}
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// claimOf returns a claim with a request for each of these numbers of devices.
func claimOf(counts ...int64) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for i, count := range counts {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: fmt.Sprint(i), Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			},
		})
	}
	return claim
}

func compile(t *testing.T, claims ...*resourceapi.ResourceClaim) *Request {
	t.Helper()
	request, err := Compile(claims, noClasses{}, selector.NewCache(cel.Features{}), options)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// chosen returns the devices of each request, by number.
func chosen(a *Allocation) []string {
	var all []string
	for i := range a.chosen {
		text := ""
		for _, device := range a.chosen[i].devices {
			text += device.Spec.Name
		}
		all = append(all, text)
	}
	return all
}

func TestTheBestDevicesAreChosen(t *testing.T) {
	// Roots a and b are in socket 0, c and d in socket 1.
	at := func(roots string) []place {
		var all []place
		for _, root := range roots {
			lower := root | 0x20
			all = append(all, place{
				root: string(lower), socket: map[bool]string{true: "0", false: "1"}[lower < 'c'], held: root < 'a',
			})
		}
		return all
	}
	for name, test := range map[string]struct {
		places []place // an upper-case root is that of an allocated device
		counts []int64
		want   []string
	}{
		"a pair of one root":                  {at("abcdabcd"), []int64{2}, []string{"04"}},
		"a pair of one socket":                {at("acbd"), []int64{2}, []string{"02"}},
		"four of one socket":                  {at("acbdacbd"), []int64{4}, []string{"0426"}},
		"one of a root that is broken":        {at("aabB"), []int64{1}, []string{"2"}},
		"one of a socket that is broken":      {at("abcD"), []int64{1}, []string{"2"}},
		"two requests, each together":         {at("abab"), []int64{2, 2}, []string{"02", "13"}},
		"two requests, and both together":     {at("acac"), []int64{1, 1}, []string{"0", "2"}},
		"a pair where no driver says a thing": {make([]place, 4), []int64{2}, []string{"01"}},
		"a pair next to devices of which nothing is known": {
			append(make([]place, 2), at("aa")...), []int64{2}, []string{"23"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node, held := nodeOf(t, test.places)
			best, err := compile(t, claimOf(test.counts...)).Improve(t.Context(), node, held)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, chosen(best)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoChoiceIsBetter compares with all choices that there are.
func TestNoChoiceIsBetter(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		var places []place
		for range 1 + r.IntN(8) {
			at := place{root: fmt.Sprint(r.IntN(4)), socket: fmt.Sprint(r.IntN(2)), held: r.IntN(4) == 0}
			if r.IntN(8) == 0 {
				at.root = ""
			}
			places = append(places, at)
		}
		claim := claimOf([]int64{1 + r.Int64N(3), 1 + r.Int64N(2)}[:1+r.IntN(2)]...)
		if r.IntN(4) == 0 {
			constraint := resourceapi.DeviceConstraint{MatchAttribute: &options.Levels[1]}
			if r.IntN(2) == 0 {
				constraint = resourceapi.DeviceConstraint{DistinctAttribute: &options.Levels[0]}
			}
			claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints, constraint)
		}
		request := compile(t, claim)
		node, held := nodeOf(t, places)
		s, err := request.search(t.Context(), node, held)
		if err != nil {
			t.Fatal(err)
		}
		var least *Cost
		every(s, 0, 0, 0, func() {
			if cost := s.topologyOf().cost(request, s.chosen); least == nil || cost.Compare(*least) < 0 {
				least = &cost
			}
		})
		best, err := request.Improve(t.Context(), node, held)
		if (err != nil) != (least == nil) {
			t.Fatalf("seed %d: %v, and the least cost is %v", seed, err, least)
		}
		if least == nil {
			continue
		}
		cost, err := request.CostOf(t.Context(), node, held, best)
		if err != nil || cost.Compare(*least) != 0 {
			t.Errorf("seed %d: %v costs %+v, and the best %+v (%v)", seed, chosen(best), cost, *least, err)
		}
	}
}

// every calls visit for each choice of devices, of which slot i has n from those before k.
func every(s *search, i, n, k int, visit func()) {
	if i == len(s.request.slots) {
		visit()
		return
	}
	a := &s.request.slots[i].alternatives[0]
	if n == a.count {
		every(s, i+1, 0, 0, visit)
		return
	}
	devices := s.of[i][0].devices
	for ; k < len(devices); k++ {
		if s.usable(i, devices[k]) && s.allowed(a, devices[k]) {
			s.take(i, devices[k])
			every(s, i, n+1, k+1, visit)
			s.release(i, devices[k])
		}
	}
}

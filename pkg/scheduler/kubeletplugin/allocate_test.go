// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// two is a node with two NUMA nodes, each with three GPUs, two NICs and a device of QAT.
var two = []string{
	"gpu 0 g0", "gpu 0 g1", "gpu 0 g2", "nic 0 n0", "nic 0 n1", "qat 0 q0",
	"gpu 1 g3", "gpu 1 g4", "gpu 1 g5", "nic 1 n2", "nic 1 n3", "qat 1 q1",
}

type list = types.ResourceList

func TestPodsGetTheDevicesThatTheyAskFor(t *testing.T) {
	for name, test := range map[string]struct {
		node  []string
		taken list // counts of a pod that is there before
		pod   []ask
		want  map[string]string
	}{
		"a count comes from one NUMA node": {
			node: two, pod: []ask{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 g0, gpu 0 g1, gpu 0 g2"},
		},
		"what is left of a group that is broken up goes before a whole one": {
			node: two, taken: list{gpu: 1}, pod: []ask{{limits: list{gpu: 2}}},
			want: map[string]string{"main": "gpu 0 g1, gpu 0 g2"},
		},
		"a whole group stays whole for one device, too": {
			node: []string{"gpu 0 a", "gpu 0 b", "gpu 0 c", "gpu 0 d", "gpu 1 e", "gpu 1 f"},
			pod:  []ask{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 1 e"},
		},
		"a count that fits into no NUMA node comes from as few as possible": {
			node: []string{"gpu 0 a", "gpu 1 b", "gpu 1 c", "gpu 2 d", "gpu 2 e", "gpu 3 f"},
			pod:  []ask{{limits: list{gpu: 4}}},
			want: map[string]string{"main": "gpu 1 b, gpu 1 c, gpu 2 d, gpu 2 e"},
		},
		"counts of several resources come from one NUMA node": {
			node: []string{"gpu 0 a", "qat 0 q", "gpu 1 b", "nic 1 n", "gpu 2 c", "nic 2 m", "nic 2 o"},
			pod:  []ask{{limits: list{gpu: 1, nic: 1}}},
			want: map[string]string{"main": "gpu 1 b, nic 1 n"},
		},
		"devices of no NUMA node and of several serve counts": {
			node: []string{"gpu 0 a", "gpu 0-1 b", "gpu none c"}, pod: []ask{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 a, gpu 0-1 b, gpu none c"},
		},
		"unhealthy devices are given to nobody": {
			node: []string{"gpu 0 a!", "gpu 1 b"}, pod: []ask{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 1 b"},
		},
		"one placeholder is one NUMA node": {
			node: []string{"gpu 0 a", "nic 1 n", "gpu 1 b"},
			pod: []ask{{limits: list{gpu: 1, nic: 1}, requests: list{"numa/A/nvidia.com:gpu": 1,
				"numa/A/vendor.example:nic": 1}}},
			want: map[string]string{"main": "gpu 1 b, nic 1 n"},
		},
		"counts go where the placeholders are": {
			node: two, pod: []ask{{limits: list{gpu: 1, nic: 2},
				requests: list{"numa/A/vendor.example:nic/=n3/device": 1}}},
			want: map[string]string{"main": "gpu 1 g3, nic 1 n2, nic 1 n3"},
		},
		"counts beside placeholders that are called like NUMA nodes": {
			node: two, pod: []ask{{limits: list{gpu: 2, nic: 1}, requests: list{"numa/1/nvidia.com:gpu/0/device": 1}}},
			want: map[string]string{"main": "gpu 0 g0, gpu 0 g1, nic 0 n0"},
		},
		"a device by its ID": {
			node: two, pod: []ask{{limits: list{gpu: 1},
				requests: list{"resource/group/numa/A/nvidia.com:gpu/=g4/device": 1}}},
			want: map[string]string{"main": "gpu 1 g4"},
		},
		"others on the NUMA node of a device": {
			node: two, pod: []ask{{requests: list{"numa/A/nvidia.com:gpu/=g4/device": 1,
				"numa/A/vendor.example:nic": 1}}},
			want: map[string]string{"main": "gpu 1 g4, nic 1 n2"},
		},
		"a NUMA node by its name": {
			node: two, pod: []ask{{requests: list{"numa/=1/nvidia.com:gpu": 2}}},
			want: map[string]string{"main": "gpu 1 g3, gpu 1 g4"},
		},
		"not these devices": {
			node: two, pod: []ask{{limits: list{gpu: 2}, requests: list{"numa/x/nvidia.com:gpu/=g0/device": 0,
				"numa/x/nvidia.com:gpu/=g4/device": 0}}},
			want: map[string]string{"main": "gpu 0 g1, gpu 0 g2"},
		},
		"placeholders that must give way to each other": {
			node: []string{"gpu 0 a", "gpu 0 b", "nic 0 m", "gpu 1 c", "nic 1 n"},
			pod: []ask{{requests: list{
				"numa/A/nvidia.com:gpu": 1, "numa/A/vendor.example:nic": 1,
				"numa/B/nvidia.com:gpu": 1, "numa/B/vendor.example:nic": 1,
			}}},
			want: map[string]string{"main": "gpu 0 a, gpu 1 c, nic 0 m, nic 1 n"},
		},
		"containers that run together share nothing, and init containers use what they will have": {
			node: two,
			pod: []ask{
				{name: "side", kind: grouptree.Sidecar, limits: list{qat: 1}}, {name: "init", kind: grouptree.Init,
					limits: list{gpu: 2, qat: 1}},
				{name: "a", limits: list{gpu: 1}}, {name: "b", limits: list{gpu: 1}},
			},
			want: map[string]string{"a": "gpu 0 g0", "b": "gpu 0 g1", "side": "qat 0 q0",
				"init": "gpu 0 g0, gpu 0 g1, qat 1 q1"},
		},
		"a sidecar that starts later leaves its device to the init container before it": {
			node: two,
			pod: []ask{
				{name: "init", kind: grouptree.Init, limits: list{qat: 1}}, {name: "side", kind: grouptree.Sidecar,
					limits: list{qat: 1}},
			},
			want: map[string]string{"side": "qat 0 q0", "init": "qat 0 q0"},
		},
		"a container leaves the only device that a sidecar can have to it": {
			node: []string{"qat 0 a", "qat 1 b"},
			pod: []ask{
				{name: "before", kind: grouptree.Init, requests: list{"numa/A/intel.com:qat/=a/device": 1}},
				{name: "side", kind: grouptree.Sidecar, limits: list{qat: 1}},
				{name: "after", kind: grouptree.Init, requests: list{"numa/A/intel.com:qat/=b/device": 1}},
				{name: "main", limits: list{qat: 1}},
			},
			want: map[string]string{"before": "qat 0 a", "side": "qat 0 a", "after": "qat 1 b", "main": "qat 1 b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, test.node...)
			if len(test.taken) > 0 {
				r.run(request("before", ask{limits: test.taken}))
			}
			if diff := cmp.Diff(test.want, r.run(request("p", test.pod...))); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// situation is a pod that comes to a node.
type situation struct {
	node []string
	pod  []ask
}

// hard returns a situation with more ways to go through than anyone has time for: each NUMA node
// has room for one of these placeholders, of which no two are alike, and there is one placeholder
// too many of another kind.
func hard() situation {
	s := situation{pod: []ask{{requests: list{}}}}
	for numa := range 9 {
		for i := range 5 {
			s.node = append(s.node, fmt.Sprintf("gpu %d g%d.%d", numa, numa, i))
		}
		for i := range 9 {
			s.node = append(s.node, fmt.Sprintf("nic %d n%d.%d", numa, numa, i))
		}
	}
	for i := range 7 {
		at := types.ResourceName(fmt.Sprint("numa/p", i))
		s.pod[0].requests[at+"/nvidia.com:gpu"], s.pod[0].requests[at+"/vendor.example:nic"] = 3, int64(i+1)
	}
	for i := range 6 {
		s.pod[0].requests[types.ResourceName(fmt.Sprint("numa/q", i, "/nvidia.com:gpu"))] = 2
		s.pod[0].requests[types.ResourceName(fmt.Sprint("numa/r", i, "/nvidia.com:gpu"))] = 2
	}
	return s
}

func TestPodsThatDoNotFitAreToldWhatIsMissing(t *testing.T) {
	for want, test := range map[string]situation{
		"have no free nvidia.com/gpu":           {[]string{"gpu 0 a!"}, []ask{{limits: list{gpu: 1}}}},
		"have fewer than 7 free nvidia.com/gpu": {two, []ask{{limits: list{gpu: 7}}}},
		"have fewer than 3 free intel.com/qat": {two, []ask{{name: "a", limits: list{qat: 2}}, {name: "b",
			limits: list{qat: 1}}}},
		"have fewer than 4294967296 free intel.com/qat": {two, []ask{{limits: list{qat: 1 << 32}}}},
		"have no vendor.example/nic": {[]string{"gpu 0 a"},
			[]ask{{requests: list{"numa/A/vendor.example:nic": 1}}}},
		"have fewer than 2 free intel.com/qat besides the unwanted": {
			two, []ask{{limits: list{qat: 2}, requests: list{"numa/x/intel.com:qat/=q0/device": 0}}},
		},
		"have no NUMA node with 1 nvidia.com/gpu and 1 vendor.example/nic free": {
			[]string{"gpu 0 a", "nic 1 n"}, []ask{{requests: list{"numa/A/nvidia.com:gpu": 1,
				"numa/A/vendor.example:nic/0/device": 1}}},
		},
		"have no NUMA node with 2 nvidia.com/gpu free": {
			[]string{"gpu none a", "gpu none b"}, []ask{{requests: list{"numa/A/nvidia.com:gpu": 2}}},
		},
		"do not have 1 vendor.example/nic free on the NUMA node of nvidia.com/gpu \"a\"": {
			[]string{"gpu 0 a", "nic 1 n"}, []ask{{requests: list{"numa/A/nvidia.com:gpu/=a/device": 1,
				"numa/A/vendor.example:nic": 1}}},
		},
		"do not have 2 intel.com/qat free on NUMA node 1": {two, []ask{{requests: list{"numa/=1/intel.com:qat": 2}}}},
		"do not have free at once, each on one NUMA node: 2 nvidia.com/gpu; 2 nvidia.com/gpu": {
			[]string{"gpu 0 a", "gpu 0 b", "gpu 1 c", "gpu 0-1 d"}, []ask{{requests: list{"numa/A/nvidia.com:gpu": 2,
				"numa/B/nvidia.com:gpu": 2}}},
		},
		"were given up after too many steps of the search for NUMA nodes: use fewer placeholders for them": hard(),
		`have too few devices left for 1 intel.com/qat of container "side"`: {
			[]string{"qat 0 a", "qat 1 b"},
			[]ask{
				{name: "side", kind: grouptree.Sidecar, limits: list{qat: 1}},
				{name: "init", kind: grouptree.Init, requests: list{"numa/=0/intel.com:qat": 1}},
				{name: "main", requests: list{"numa/=1/intel.com:qat": 1}},
			},
		},
		`cannot serve container "main": numa/A/intel.com:qat/=/device has no name behind "=": ` +
			`add the ID of a device or the number of a NUMA node`: {
			two, []ask{{requests: list{"numa/A/intel.com:qat/=/device": 1}}},
		},
		`cannot serve container "main": numa/=/intel.com:qat has no name behind "=": ` +
			`add the ID of a device or the number of a NUMA node`: {
			two, []ask{{requests: list{"numa/=/intel.com:qat": 1}}},
		},
		`cannot serve container "main": the pod asks for more than 4096 devices by placeholders: ask for fewer`: {
			two, []ask{{requests: list{"numa/A/intel.com:qat": 4000, "numa/B/intel.com:qat": 97}}},
		},
		"cannot serve the pod: numa/A/intel.com:qat is 0: ask for 1 to 4096": {two, []ask{{limits: list{qat: 1},
			ofPod: list{"numa/A/intel.com:qat": 0}}}},
		"cannot serve resource/group/numa/A/intel.com:qat/0/device for a pod as a whole: " +
			"write it under one of its containers": {
			two, []ask{{limits: list{qat: 1}, ofPod: list{"numa/A/intel.com:qat": 1}}},
		},
		"have no free intel.com/qat besides the unwanted": {
			[]string{"qat 0 q"}, []ask{{limits: list{qat: 1}, ofPod: list{"numa/A/intel.com:qat/=q/device": 0}}},
		},
		`have no nvidia.com/gpu "x"`: {two,
			[]ask{{requests: list{"numa/A/nvidia.com:gpu/=x/device": 1}}}},
		`have no nvidia.com/gpu "g0" on NUMA node 1`: {two,
			[]ask{{requests: list{"numa/=1/nvidia.com:gpu/=g0/device": 1}}}},
		`have nvidia.com/gpu "a" in use or unhealthy`: {[]string{"gpu 0 a!", "gpu 0 b"},
			[]ask{{requests: list{"numa/A/nvidia.com:gpu/=a/device": 1}}}},
		`cannot serve nvidia.com/gpu "g0": the pod asks for it and does not want it`: {
			two, []ask{{requests: list{"numa/A/nvidia.com:gpu/=g0/device": 1, "numa/B/nvidia.com:gpu/=g0/device": 0}}},
		},
		`cannot serve container "main": numa/A/nvidia.com:gpu/0/device is 2: ` +
			`ask for 1 of it, or for several without naming each`: {
			two, []ask{{requests: list{"numa/A/nvidia.com:gpu/0/device": 2}}},
		},
		`cannot serve container "main": numa/A/nvidia.com:gpu is 0: ask for 1 to 4096`: {two,
			[]ask{{requests: list{"numa/A/nvidia.com:gpu": 0}}}},
		"no device scheduler serves numa/A/gpu/0/device of container \"main\"": {two,
			[]ask{{requests: list{"numa/A/gpu/0/device": 1}}}},
	} {
		t.Run(want, func(t *testing.T) {
			if got := newFixture(t, test.node...).refusal(request("p", test.pod...)); got != want {
				t.Errorf("nodes %s", got)
			}
		})
	}
}

func TestEvictionsHelpAgainstWhatPodsHoldAndNothingElse(t *testing.T) {
	node := []string{"gpu 0 a", "gpu 0 b", "gpu 1 c", "gpu 1 d!"}
	for name, test := range map[string]struct {
		pod  ask
		help bool
	}{
		"all are held":                       {ask{limits: list{gpu: 1}}, true},
		"there are too few, held or not":     {ask{limits: list{gpu: 4}}, false},
		"there are none":                     {ask{requests: list{"numa/A/vendor.example:nic": 1}}, false},
		"they would be together":             {ask{requests: list{"numa/A/nvidia.com:gpu": 2}}, true},
		"one of those together is unhealthy": {ask{requests: list{"numa/=1/nvidia.com:gpu": 2}}, false},
		"the device is held":                 {ask{requests: list{"numa/A/nvidia.com:gpu/=a/device": 1}}, true},
		"the device is not there": {ask{requests: list{"numa/A/nvidia.com:gpu/=x/device": 1}},
			false},
		"the device is unhealthy": {ask{requests: list{"numa/A/nvidia.com:gpu/=d/device": 1}},
			false},
		"the pod does not want those that are there": {ask{limits: list{gpu: 3},
			requests: list{"numa/A/nvidia.com:gpu/=a/device": 0}}, false},
		"the request cannot be read": {ask{requests: list{"numa/A/nvidia.com:gpu": 0}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, node...)
			r.run(request("before", ask{limits: list{gpu: 3}}))
			if verdict := r.fit(request("p", test.pod)); verdict.Fits || verdict.Never == test.help {
				t.Errorf("got %+v", verdict)
			}
		})
	}
}

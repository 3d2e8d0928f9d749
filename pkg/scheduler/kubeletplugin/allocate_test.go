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

func TestAllocatesRequestedDevices(t *testing.T) {
	for name, test := range map[string]struct {
		node  []string
		taken list // counts of a pod that runs already
		pod   []spec
		want  map[string]string
	}{
		"a count comes from one NUMA node": {
			node: two, pod: []spec{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 g0, gpu 0 g1, gpu 0 g2"},
		},
		"the rest of a broken group is preferred to a whole group": {
			node: two, taken: list{gpu: 1}, pod: []spec{{limits: list{gpu: 2}}},
			want: map[string]string{"main": "gpu 0 g1, gpu 0 g2"},
		},
		"one device does not break up a whole group": {
			node: []string{"gpu 0 a", "gpu 0 b", "gpu 0 c", "gpu 0 d", "gpu 1 e", "gpu 1 f"},
			pod:  []spec{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 1 e"},
		},
		"a count that fits into no NUMA node comes from as few as possible": {
			node: []string{"gpu 0 a", "gpu 1 b", "gpu 1 c", "gpu 2 d", "gpu 2 e", "gpu 3 f"},
			pod:  []spec{{limits: list{gpu: 4}}},
			want: map[string]string{"main": "gpu 1 b, gpu 1 c, gpu 2 d, gpu 2 e"},
		},
		"counts of several resources come from one NUMA node": {
			node: []string{"gpu 0 a", "qat 0 q", "gpu 1 b", "nic 1 n", "gpu 2 c", "nic 2 m", "nic 2 o"},
			pod:  []spec{{limits: list{gpu: 1, nic: 1}}},
			want: map[string]string{"main": "gpu 1 b, nic 1 n"},
		},
		"devices of no NUMA node and of several serve counts": {
			node: []string{"gpu 0 a", "gpu 0-1 b", "gpu none c"}, pod: []spec{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 a, gpu 0-1 b, gpu none c"},
		},
		"unhealthy devices are not allocated": {
			node: []string{"gpu 0 a!", "gpu 1 b"}, pod: []spec{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 1 b"},
		},
		"one placeholder is one NUMA node": {
			node: []string{"gpu 0 a", "nic 1 n", "gpu 1 b"},
			pod: []spec{{limits: list{gpu: 1, nic: 1}, requests: list{"numa/A/nvidia.com:gpu": 1,
				"numa/A/vendor.example:nic": 1}}},
			want: map[string]string{"main": "gpu 1 b, nic 1 n"},
		},
		"counts go where the placeholders are": {
			node: two, pod: []spec{{limits: list{gpu: 1, nic: 2},
				requests: list{"numa/A/vendor.example:nic/=n3/device": 1}}},
			want: map[string]string{"main": "gpu 1 g3, nic 1 n2, nic 1 n3"},
		},
		"counts next to placeholders with the names of NUMA nodes": {
			node: two, pod: []spec{{limits: list{gpu: 2, nic: 1}, requests: list{"numa/1/nvidia.com:gpu/0/device": 1}}},
			want: map[string]string{"main": "gpu 0 g0, gpu 0 g1, nic 0 n0"},
		},
		"a device by its ID": {
			node: two, pod: []spec{{limits: list{gpu: 1},
				requests: list{"resource/group/numa/A/nvidia.com:gpu/=g4/device": 1}}},
			want: map[string]string{"main": "gpu 1 g4"},
		},
		"others on the NUMA node of a device": {
			node: two, pod: []spec{{requests: list{"numa/A/nvidia.com:gpu/=g4/device": 1,
				"numa/A/vendor.example:nic": 1}}},
			want: map[string]string{"main": "gpu 1 g4, nic 1 n2"},
		},
		"a NUMA node by its name": {
			node: two, pod: []spec{{requests: list{"numa/=1/nvidia.com:gpu": 2}}},
			want: map[string]string{"main": "gpu 1 g3, gpu 1 g4"},
		},
		"excluded devices": {
			node: two, pod: []spec{{limits: list{gpu: 2}, requests: list{"numa/x/nvidia.com:gpu/=g0/device": 0,
				"numa/x/nvidia.com:gpu/=g4/device": 0}}},
			want: map[string]string{"main": "gpu 0 g1, gpu 0 g2"},
		},
		"placeholders that compete for NUMA nodes": {
			node: []string{"gpu 0 a", "gpu 0 b", "nic 0 m", "gpu 1 c", "nic 1 n"},
			pod: []spec{{requests: list{
				"numa/A/nvidia.com:gpu": 1, "numa/A/vendor.example:nic": 1,
				"numa/B/nvidia.com:gpu": 1, "numa/B/vendor.example:nic": 1,
			}}},
			want: map[string]string{"main": "gpu 0 a, gpu 1 c, nic 0 m, nic 1 n"},
		},
		"containers that run together share nothing, and init containers use what they will have": {
			node: two,
			pod: []spec{
				{name: "side", kind: grouptree.Sidecar, limits: list{qat: 1}}, {name: "init", kind: grouptree.Init,
					limits: list{gpu: 2, qat: 1}},
				{name: "a", limits: list{gpu: 1}}, {name: "b", limits: list{gpu: 1}},
			},
			want: map[string]string{"a": "gpu 0 g0", "b": "gpu 0 g1", "side": "qat 0 q0",
				"init": "gpu 0 g0, gpu 0 g1, qat 1 q1"},
		},
		"a sidecar that starts later leaves its device to the init container before it": {
			node: two,
			pod: []spec{
				{name: "init", kind: grouptree.Init, limits: list{qat: 1}}, {name: "side", kind: grouptree.Sidecar,
					limits: list{qat: 1}},
			},
			want: map[string]string{"side": "qat 0 q0", "init": "qat 0 q0"},
		},
		"a container leaves the only device that a sidecar can have to it": {
			node: []string{"qat 0 a", "qat 1 b"},
			pod: []spec{
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
				r.run(requestOf("before", spec{limits: test.taken}))
			}
			if diff := cmp.Diff(test.want, r.run(requestOf("p", test.pod...))); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// situation is a node and a pod to place on it.
type situation struct {
	node []string
	pod  []spec
}

// hard returns a situation with too many combinations for an exhaustive search: each NUMA node can
// serve one of these placeholders, no two of which are alike, and there is one placeholder of
// another kind too many.
func hard() situation {
	s := situation{pod: []spec{{requests: list{}}}}
	for numa := range 9 {
		for i := range 5 {
			s.node = append(s.node, fmt.Sprintf("gpu %d g%d.%d", numa, numa, i))
		}
		for i := range 9 {
			s.node = append(s.node, fmt.Sprintf("nic %d n%d.%d", numa, numa, i))
		}
	}
	for i := range 7 {
		prefix := types.ResourceName(fmt.Sprint("numa/p", i))
		s.pod[0].requests[prefix+"/nvidia.com:gpu"], s.pod[0].requests[prefix+"/vendor.example:nic"] = 3, int64(i+1)
	}
	for i := range 6 {
		s.pod[0].requests[types.ResourceName(fmt.Sprint("numa/q", i, "/nvidia.com:gpu"))] = 2
		s.pod[0].requests[types.ResourceName(fmt.Sprint("numa/r", i, "/nvidia.com:gpu"))] = 2
	}
	return s
}

func TestReasonNamesWhatTheNodeLacks(t *testing.T) {
	for want, test := range map[string]situation{
		"have no free nvidia.com/gpu":           {[]string{"gpu 0 a!"}, []spec{{limits: list{gpu: 1}}}},
		"have fewer than 7 free nvidia.com/gpu": {two, []spec{{limits: list{gpu: 7}}}},
		"have fewer than 3 free intel.com/qat": {two, []spec{{name: "a", limits: list{qat: 2}}, {name: "b",
			limits: list{qat: 1}}}},
		"have fewer than 4294967296 free intel.com/qat": {two, []spec{{limits: list{qat: 1 << 32}}}},
		"have no vendor.example/nic": {[]string{"gpu 0 a"},
			[]spec{{requests: list{"numa/A/vendor.example:nic": 1}}}},
		"have fewer than 2 free intel.com/qat other than the excluded ones": {
			two, []spec{{limits: list{qat: 2}, requests: list{"numa/x/intel.com:qat/=q0/device": 0}}},
		},
		"have no NUMA node with 1 nvidia.com/gpu and 1 vendor.example/nic free": {
			[]string{"gpu 0 a", "nic 1 n"}, []spec{{requests: list{"numa/A/nvidia.com:gpu": 1,
				"numa/A/vendor.example:nic/0/device": 1}}},
		},
		"have no NUMA node with 2 nvidia.com/gpu free": {
			[]string{"gpu none a", "gpu none b"}, []spec{{requests: list{"numa/A/nvidia.com:gpu": 2}}},
		},
		"do not have 1 vendor.example/nic free on the NUMA node of nvidia.com/gpu \"a\"": {
			[]string{"gpu 0 a", "nic 1 n"}, []spec{{requests: list{"numa/A/nvidia.com:gpu/=a/device": 1,
				"numa/A/vendor.example:nic": 1}}},
		},
		"do not have 2 intel.com/qat free on NUMA node 1": {two, []spec{{requests: list{"numa/=1/intel.com:qat": 2}}}},
		"do not have free at once, each on one NUMA node: 2 nvidia.com/gpu; 2 nvidia.com/gpu": {
			[]string{"gpu 0 a", "gpu 0 b", "gpu 1 c", "gpu 0-1 d"}, []spec{{requests: list{"numa/A/nvidia.com:gpu": 2,
				"numa/B/nvidia.com:gpu": 2}}},
		},
		"were given up after too many steps of the search for NUMA nodes: use fewer placeholders for them": hard(),
		`have too few devices left for 1 intel.com/qat of container "side"`: {
			[]string{"qat 0 a", "qat 1 b"},
			[]spec{
				{name: "side", kind: grouptree.Sidecar, limits: list{qat: 1}},
				{name: "init", kind: grouptree.Init, requests: list{"numa/=0/intel.com:qat": 1}},
				{name: "main", requests: list{"numa/=1/intel.com:qat": 1}},
			},
		},
		`cannot serve container "main": numa/A/intel.com:qat/=/device has no name behind "=": ` +
			`add the ID of a device or the number of a NUMA node`: {
			two, []spec{{requests: list{"numa/A/intel.com:qat/=/device": 1}}},
		},
		`cannot serve container "main": numa/=/intel.com:qat has no name behind "=": ` +
			`add the ID of a device or the number of a NUMA node`: {
			two, []spec{{requests: list{"numa/=/intel.com:qat": 1}}},
		},
		`cannot serve container "main": the pod requests more than 4096 devices by placeholders: request fewer`: {
			two, []spec{{requests: list{"numa/A/intel.com:qat": 4000, "numa/B/intel.com:qat": 97}}},
		},
		"cannot serve the pod: numa/A/intel.com:qat is 0: request 1 to 4096": {two, []spec{{limits: list{qat: 1},
			podRequests: list{"numa/A/intel.com:qat": 0}}}},
		"cannot serve resource/group/numa/A/intel.com:qat/0/device for a pod as a whole: " +
			"write it under one of its containers": {
			two, []spec{{limits: list{qat: 1}, podRequests: list{"numa/A/intel.com:qat": 1}}},
		},
		"have no free intel.com/qat other than the excluded ones": {
			[]string{"qat 0 q"}, []spec{{limits: list{qat: 1}, podRequests: list{"numa/A/intel.com:qat/=q/device": 0}}},
		},
		`have no nvidia.com/gpu "x"`: {two,
			[]spec{{requests: list{"numa/A/nvidia.com:gpu/=x/device": 1}}}},
		`have no nvidia.com/gpu "g0" on NUMA node 1`: {two,
			[]spec{{requests: list{"numa/=1/nvidia.com:gpu/=g0/device": 1}}}},
		`have nvidia.com/gpu "a" in use or unhealthy`: {[]string{"gpu 0 a!", "gpu 0 b"},
			[]spec{{requests: list{"numa/A/nvidia.com:gpu/=a/device": 1}}}},
		`cannot serve nvidia.com/gpu "g0": the pod requests and excludes it`: {
			two, []spec{{requests: list{"numa/A/nvidia.com:gpu/=g0/device": 1, "numa/B/nvidia.com:gpu/=g0/device": 0}}},
		},
		`cannot serve container "main": numa/A/nvidia.com:gpu/0/device is 2: ` +
			`request 1 of it, or several without naming each`: {
			two, []spec{{requests: list{"numa/A/nvidia.com:gpu/0/device": 2}}},
		},
		`cannot serve container "main": numa/A/nvidia.com:gpu is 0: request 1 to 4096`: {two,
			[]spec{{requests: list{"numa/A/nvidia.com:gpu": 0}}}},
		"no device scheduler serves numa/A/gpu/0/device of container \"main\"": {two,
			[]spec{{requests: list{"numa/A/gpu/0/device": 1}}}},
	} {
		t.Run(want, func(t *testing.T) {
			if got := newFixture(t, test.node...).refusal(requestOf("p", test.pod...)); got != want {
				t.Errorf("nodes %s", got)
			}
		})
	}
}

func TestOnlyHeldDevicesMakeEvictionHelp(t *testing.T) {
	node := []string{"gpu 0 a", "gpu 0 b", "gpu 1 c", "gpu 1 d!"}
	for name, test := range map[string]struct {
		pod  spec
		help bool
	}{
		"all are held":                       {spec{limits: list{gpu: 1}}, true},
		"there are too few, held or not":     {spec{limits: list{gpu: 4}}, false},
		"there are none":                     {spec{requests: list{"numa/A/vendor.example:nic": 1}}, false},
		"they would be together":             {spec{requests: list{"numa/A/nvidia.com:gpu": 2}}, true},
		"one of those together is unhealthy": {spec{requests: list{"numa/=1/nvidia.com:gpu": 2}}, false},
		"the device is held":                 {spec{requests: list{"numa/A/nvidia.com:gpu/=a/device": 1}}, true},
		"the device is not there": {spec{requests: list{"numa/A/nvidia.com:gpu/=x/device": 1}},
			false},
		"the device is unhealthy": {spec{requests: list{"numa/A/nvidia.com:gpu/=d/device": 1}},
			false},
		"the pod excludes the existing devices": {spec{limits: list{gpu: 3},
			requests: list{"numa/A/nvidia.com:gpu/=a/device": 0}}, false},
		"the request cannot be read": {spec{requests: list{"numa/A/nvidia.com:gpu": 0}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, node...)
			r.run(requestOf("before", spec{limits: list{gpu: 3}}))
			if verdict := r.fit(requestOf("p", test.pod)); verdict.Fits || verdict.Unresolvable == test.help {
				t.Errorf("got %+v", verdict)
			}
		})
	}
}

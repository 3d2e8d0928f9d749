// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"cmp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	plugin "github.com/kubedevice/kubedevice/plugins/gpu"
)

const topology types.ResourceName = "gpu/gpu-generate-topology"

// The three ways by which a node may have GPUs, see docs/vendors/device-plugins.md. The first one
// also has NICs.
const (
	hosted    = "hosted"
	ofAFile   = "plugin file"
	ofKubelet = "kubelet"
)

// fixturesOfAllWays returns a fixture for each way, with the plugin for GPUs.
func fixturesOfAllWays(t *testing.T) map[string]*fixture {
	t.Helper()
	all := map[string]*fixture{hosted: newFixtureWith(t, gpuPlugin(), "gpu 0 g0", "gpu 0 g1", "gpu 1 g2", "nic 0 n0")}

	all[ofAFile] = newFixtureWith(t, gpuPlugin())
	all[ofAFile].node = types.NewNodeInfoWithName("n2")
	plugin.Publish(all[ofAFile].node, gpu, []plugin.GPU{
		{ID: "GPU-0", Memory: 1 << 30, Groups: []int{0, 0}}, {ID: "GPU-1", Memory: 1 << 30, Groups: []int{0, 0}},
		{ID: "GPU-2", Memory: 1 << 30, Groups: []int{1, 0}},
	})
	all[ofAFile].publish()

	all[ofKubelet] = newFixtureWith(t, gpuPlugin())
	all[ofKubelet].node = types.NewNodeInfoWithName("n3")
	all[ofKubelet].node.KubeCap[gpu], all[ofKubelet].node.KubeAlloc[gpu] = 3, 3
	all[ofKubelet].publish()
	return all
}

// outcome says how many devices a pod gets, "as by limits" where it is left to the kubelet, and why
// the node refuses it otherwise.
func outcome(t *testing.T, r *fixture, made *request.Request) string {
	t.Helper()
	if refusal := r.refusal(made); refusal != "" {
		return refusal
	}
	if r.fit(made).NoDevices {
		return "as by limits"
	}
	pod, err := r.set.Allocate(t.Context(), r.state(), made)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, container := range made.Containers {
		info := pod.RunningContainers[container.Name]
		if diff := gocmp.Diff(made.Pod.RunningContainers[container.Name].Requests, info.Requests); diff != "" {
			t.Errorf("what the user wrote has changed (-want +got):\n%s", diff)
		}
		texts = append(texts, strings.Repeat("x", len(info.AllocateFrom)))
	}
	return strings.Join(texts, " ")
}

func TestACountInTheAnnotationIsOneWithThatOfTheLimits(t *testing.T) {
	const tooMany = `cannot serve container "main": too few GPUs for `
	for name, test := range map[string]struct {
		limits, written int64
		want            map[string]string
	}{
		"the same twice": {1, 1, map[string]string{hosted: "x", ofAFile: "x", ofKubelet: "as by limits"}},
		"the annotation's alone": {0, 2, map[string]string{
			hosted: "xx", ofAFile: "xx", ofKubelet: tooMany + "2 of nvidia.com/gpu",
		}},
		"a larger one": {1, 3, map[string]string{
			hosted: "xxx", ofAFile: "xxx", ofKubelet: tooMany + "3 of nvidia.com/gpu",
		}},
		"a smaller one": {2, 1, map[string]string{hosted: "xx", ofAFile: "xx", ofKubelet: "as by limits"}},
		"none":          {1, 0, map[string]string{hosted: "x", ofAFile: "x", ofKubelet: "as by limits"}},
		"more than there are": {1, 4, map[string]string{
			hosted: "have fewer than 4 free nvidia.com/gpu", ofAFile: tooMany + "4 of nvidia.com/gpu",
			ofKubelet: tooMany + "4 of nvidia.com/gpu",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for way, r := range fixturesOfAllWays(t) {
				c := spec{limits: list{}, requests: list{gpu: test.written}}
				if test.limits > 0 {
					c.limits[gpu] = test.limits
				}
				got[way] = outcome(t, r, requestOf("p", c))
			}
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestACountInTheAnnotationIncludesTheDevicesOfItsPaths(t *testing.T) {
	r := newFixture(t, "nic 0 n0", "nic 1 n1", "nic 1 n2", "nic 2 n3")
	got := r.run(requestOf("p", spec{requests: list{"numa/A/vendor.example:nic": 2, nic: 3}}))
	if want := 3; strings.Count(got["main"], "nic") != want || !strings.Contains(got["main"], "n1, nic 1 n2") {
		t.Errorf("the container got %q, want %d NICs, two of them on one NUMA node", got["main"], want)
	}
}

// choices are requests of a container that counts two GPUs, or of its pod, and what comes of them.
func TestARequestByWhichDevicesAreChosenIsHonouredOrTheNodeRefusesThePod(t *testing.T) {
	const (
		exclusion = "numa/A/nvidia.com:gpu/=g0/device"
		dropped   = ` for nvidia.com/gpu of container "main": leave it out to use them`
	)
	refused := func(choice types.ResourceName) string { return "do not read " + string(choice) + dropped }
	full := types.DeviceGroupPrefix + "/" + topology
	for name, test := range map[string]struct {
		requests, ofPod types.ResourceList
		count           int64 // 0 for 2
		waited          bool
		want            map[string]string
	}{
		"the best topology is required": {requests: list{topology: 1}, want: map[string]string{
			hosted: refused(topology), ofAFile: "xx", ofKubelet: refused(topology),
		}},
		"in the full form": {requests: list{full: 1, topology: 0}, want: map[string]string{
			hosted: refused(full), ofAFile: "xx", ofKubelet: refused(full),
		}},
		"for the pod": {ofPod: list{topology: 1}, want: map[string]string{
			hosted: refused(topology), ofAFile: "xx", ofKubelet: refused(topology),
		}},
		"the best topology of one GPU": {requests: list{topology: 1}, count: 1,
			want: map[string]string{hosted: "x", ofAFile: "x", ofKubelet: "as by limits"}},
		"of one GPU that the annotation counts as two": {requests: list{topology: 1, gpu: 2}, count: 1,
			want: map[string]string{hosted: refused(topology), ofAFile: "xx", ofKubelet: refused(topology)}},
		"one GPU without another": {requests: list{exclusion: 0}, count: 1, want: map[string]string{
			hosted: "x", ofAFile: refused(exclusion), ofKubelet: refused(exclusion),
		}},
		"for the pod, but not for the container": {ofPod: list{topology: 1}, requests: list{topology: 0},
			want: map[string]string{hosted: "xx", ofAFile: "xx", ofKubelet: "as by limits"}},
		"and the pod has waited": {requests: list{topology: 1}, waited: true,
			want: map[string]string{hosted: "xx", ofAFile: "xx", ofKubelet: "as by limits"}},
		"GPUs anywhere": {requests: list{topology: 0},
			want: map[string]string{hosted: "xx", ofAFile: "xx", ofKubelet: "as by limits"}},
		"an option of no plugin": {requests: list{"gpu/gpu-generate-topologie": 1},
			want: map[string]string{hosted: "xx", ofAFile: "xx", ofKubelet: "as by limits"}},
		"a device is excluded": {requests: list{exclusion: 0}, want: map[string]string{
			hosted: "xx", ofAFile: refused(exclusion), ofKubelet: refused(exclusion),
		}},
		"for the pod a device is excluded": {ofPod: list{exclusion: 0}, want: map[string]string{
			hosted: "xx", ofAFile: refused(exclusion), ofKubelet: refused(exclusion),
		}},
		"a device of a resource that is not counted is excluded": {
			requests: list{"numa/A/vendor.example:nic/=n0/device": 0},
			want:     map[string]string{hosted: "xx", ofAFile: "xx", ofKubelet: "as by limits"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for way, r := range fixturesOfAllWays(t) {
				made := requestOf("p", spec{
					limits: list{gpu: cmp.Or(test.count, 2)}, requests: test.requests, podRequests: test.ofPod,
				})
				made.Waited = test.waited
				got[way] = outcome(t, r, made)
			}
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnEmptySelectionExcludesNoNode(t *testing.T) {
	for _, requests := range []types.ResourceList{
		{topology: 1}, {topology: 0}, {"gpu/gpu-generate-topologie": 1}, {"numa/A/nvidia.com:gpu/=g0/device": 0},
	} {
		for way, r := range fixturesOfAllWays(t) {
			if got := outcome(t, r, requestOf("p", spec{requests: requests})); got != "as by limits" {
				t.Errorf("%v, GPUs of %s: a pod without devices gets %q", requests, way, got)
			}
		}
		r := fixturesOfAllWays(t)[hosted]
		made := requestOf("p", spec{name: "a", limits: list{nic: 1}}, spec{name: "b", requests: requests})
		if got := outcome(t, r, made); got != "x " {
			t.Errorf("%v in a container without devices: the pod gets %q", requests, got)
		}
	}
}

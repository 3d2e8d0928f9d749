// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// A request that is for no device says how devices are chosen: it needs no allocation.
var choices = map[string]types.ResourceList{
	"an exclusion":             {"numa/A/vendor.example:nic/=eth0/device": 0},
	"a full exclusion":         {"resource/group/numa/A/vendor.example:nic/=eth0/device": 0},
	"an option":                {"gpu/gpu-generate-topology": 1},
	"a full option":            {"resource/group/gpu/gpu-generate-topology": 1},
	"an option of some plugin": {"widget/speed": 3},
	"an option of no plugin":   {"gpu/gpu-generate-topologie": 1},
}

func TestAContainerThatOnlyChoosesDevicesOfOthersIsCreated(t *testing.T) {
	all := maps.Clone(choices)
	all["a count of the kubelet's"] = types.ResourceList{"example.com/other": 1}
	known := podThatRequests(gpu)
	known.Requests["side"] = []types.ResourceName{"example.com/other"}
	for name, requests := range all {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, true)
			f.waitForDevices(t, 2)
			f.pods["u"] = known
			annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
			pod, err := deviceinfo.DecodePod(annotations[deviceinfo.Annotation])
			if err != nil {
				t.Fatal(err)
			}
			pod.RunningContainers["side"] = types.ContainerInfo{Requests: requests}
			if annotations[deviceinfo.Annotation], err = deviceinfo.EncodePod(pod); err != nil {
				t.Fatal(err)
			}
			for container, want := range map[string]Outcome{"main": Injected, "side": Passed} {
				f.outcomes = nil
				if _, err := f.create(t, "u", container, "api", annotations); err != nil {
					t.Errorf("%s: %v", container, err)
				}
				if diff := cmp.Diff([]Outcome{want}, f.outcomes); diff != "" {
					t.Errorf("%s: outcome (-want +got):\n%s", container, diff)
				}
			}
		})
	}
}

// Such a pod is bound without an allocation where the kubelet serves what its limits count.
func TestAPodThatOnlyChoosesDevicesOfTheKubeletIsCreated(t *testing.T) {
	all := maps.Clone(choices)
	all["the count of the limits"] = types.ResourceList{"example.com/other": 1}
	for name, requests := range all {
		for where, pod := range map[string]types.PodInfo{
			"in its container": {RunningContainers: map[string]types.ContainerInfo{"main": {Requests: requests}}},
			"as a whole":       {Requests: requests},
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				want := Passed
				if _, counts := requests["example.com/other"]; counts && where == "as a whole" {
					want = Refused // no limits are for the pod as a whole
				}
				f := newFixture(t, true)
				f.waitForDevices(t, 2)
				f.pods["u"] = other
				annotation, err := deviceinfo.EncodePod(&pod)
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.create(t, "u", "main", "api", map[string]string{deviceinfo.Annotation: annotation})
				if diff := cmp.Diff([]Outcome{want}, f.outcomes); diff != "" {
					t.Errorf("outcome (-want +got):\n%s\n%v", diff, err)
				}
			})
		}
	}
}

func TestAPodThatRequestsDevicesInItsAnnotationNeedsAnAllocation(t *testing.T) {
	for name, requests := range map[string]types.ResourceList{
		"a path":                        {"gpu/a/cards": 1},
		"a full path":                   {"resource/group/gpu/a/cards": 1},
		"a count that its limits lack":  {"example.com/gpu": 1},
		"a full path, and 0 of it":      {"resource/group/gpu/a/cards": 1, "gpu/a/cards": 0},
		"a path next to an exclusion":   {"gpu/a/cards": 1, "numa/A/vendor.example:nic/=eth0/device": 0},
		"a path of a kubelet's device":  {"numa/A/vendor.example:nic": 1},
		"a count next to a mere option": {"example.com/gpu": 1, "gpu/gpu-generate-topology": 0},
	} {
		t.Run(name, func(t *testing.T) {
			pod := types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {Requests: requests}}}
			for _, known := range []pods.Pod{plain, other} {
				for _, bound := range []string{"", "node-1"} {
					pod.NodeName, pod.Name = bound, "pod-u"
					f := newFixture(t, true)
					f.waitForDevices(t, 2)
					f.pods["u"] = known
					annotation, err := deviceinfo.EncodePod(&pod)
					if err != nil {
						t.Fatal(err)
					}
					_, err = f.create(t, "u", "main", "api", map[string]string{deviceinfo.Annotation: annotation})
					if diff := cmp.Diff([]Outcome{Refused}, f.outcomes); diff != "" {
						t.Errorf("bound to %q: outcome (-want +got):\n%s\n%v", bound, diff, err)
					}
				}
			}
		})
	}
}

// A node whose GPUs are ours refuses a pod that requests parts of some by the names of HAMi or KAI
// and that the scheduler has not bound. On other nodes it is not concerned.
func TestAPodThatRequestsPartsOfGPUsByAnotherNameNeedsAnAllocation(t *testing.T) {
	memory := podThatRequests("nvidia.com/gpumem")
	for name, test := range map[string]struct {
		pod         pods.Pod
		annotations map[string]string
		requests    bool
	}{
		"HAMi's memory":      {memory, nil, true},
		"KAI's fraction":     {plain, map[string]string{"gpu-fraction": "0.5"}, true},
		"a mere choice":      {plain, map[string]string{"nvidia.com/use-gputype": "A100"}, false},
		"another annotation": {plain, map[string]string{"example.com/gpu-fraction": "0.5"}, false},
	} {
		for _, ours := range []bool{true, false} {
			f := newFixture(t, true)
			f.waitForDevices(t, 2)
			f.pods["u"] = test.pod
			f.Admission.Pods = gpuPods{f.Admission.Pods, ours}
			_, err := f.create(t, "u", "main", "api", test.annotations)
			want := Passed
			if test.requests && ours {
				want = Refused
			}
			if diff := cmp.Diff([]Outcome{want}, f.outcomes); diff != "" {
				t.Errorf("%s, GPUs are ours: %v: outcome (-want +got):\n%s\n%v", name, ours, diff, err)
			}
		}
	}
}

// gpuPods are the pods of a node whose device resources are NVIDIA's GPUs, or none.
type gpuPods struct {
	Pods
	ours bool
}

func (p gpuPods) DeviceResources() (map[types.ResourceName]bool, bool) {
	return map[types.ResourceName]bool{"nvidia.com/gpu": p.ours}, true
}

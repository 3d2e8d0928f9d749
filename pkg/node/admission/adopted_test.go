// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// adopt makes u a pod whose container main holds the hosted card by the kubelet.
func (f *fixture) adopt() {
	info := types.NewPodInfo()
	info.Name, info.NodeName = "pod-u", "node-1"
	info.RunningContainers["main"] = given(hostedCard)
	f.adopted = []grants.Allocation{{
		PodUID: "u", Namespace: "default", Name: "pod-u", Adopted: true, PodInfo: info,
	}}
}

// The node has NVIDIA's devices, too, which the firewall guards: a container that is not let
// through gets a variable.
func TestAContainerOfAnAdoptedPodPassesWithTheDevicesThatItHad(t *testing.T) {
	type granted = []types.ResourceName
	const (
		elsewhere types.ResourceName = "resource/group/numa/1/vendor.example:card/card-7/device"
		another   types.ResourceName = "resource/group/numa/0/vendor.example:card/card-8/device"
	)
	for name, test := range map[string]struct {
		container string
		given     granted
		err       error
		want      Outcome
		code      codes.Code
		says      string
		asks      []string // what the plugin is called with
	}{
		"with its device":                  {container: "main", given: granted{hostedCard}, want: Isolated},
		"with its device, in other groups": {container: "main", given: granted{elsewhere}, want: Isolated},
		"a container that never had one":   {container: "side", want: Isolated},
		"a debug container":                {container: "debugger", want: Isolated},
		"with another device": {
			container: "main", given: granted{another}, want: Refused, code: codes.FailedPrecondition, says: "card-8",
		},
		"with one more": {
			container: "main", given: granted{hostedCard, another}, want: Refused,
			code: codes.FailedPrecondition, says: "card-8",
		},
		"with none, which the kubelet has forgotten": {
			container: "main", want: Injected, asks: []string{"vendor.example/card card-7"},
		},
		"while it is not known what the kubelet has": {
			container: "main", err: errors.New("unreadable"), want: Refused,
			code: codes.Unavailable, says: "unreadable",
		},
		"a container that requests one and had none": {
			container: "late", want: Refused, code: codes.FailedPrecondition, says: "gives it no device",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, v := newVendorFixture(t, true)
			f.adopt()
			f.Firewall, f.files = f.wall, map[string]bool{"/dev/nvidiactl": true}
			spec := f.pods["u"]
			spec.Containers = append(spec.Containers, pods.Container{Name: "side"}, pods.Container{Name: "late"})
			spec.Requests["late"] = []types.ResourceName{hostedResource}
			f.pods["u"] = spec
			f.Adopted = adoptedDevices(func(podUID, container string) ([]types.ResourceName, error) {
				if podUID != "u" || container != test.container {
					t.Errorf("what container %q of pod %q is given does not matter", container, podUID)
				}
				return test.given, test.err
			})
			_, err := f.create(t, "u", test.container, "api", nil)
			if got := f.outcomes[len(f.outcomes)-1]; got != test.want {
				t.Errorf("it is %s, want %s (%v)", got, test.want, err)
			}
			if status.Code(err) != test.code || test.says != "" && !strings.Contains(err.Error(), test.says) {
				t.Errorf("the answer is %v, want %v with %q", err, test.code, test.says)
			}
			if !slices.Equal(v.requests, test.asks) {
				t.Errorf("the plugin was asked %q, want %q", v.requests, test.asks)
			}
		})
	}
}

// A pod that another user binds after the resource has moved is no adopted pod: the kubelet has
// called kubecri for it.
func TestAPodThatTheKubeletAdmitsAfterTheMoveIsRefused(t *testing.T) {
	f, _ := newVendorFixture(t, true)
	f.adopt()
	f.pods["v"] = f.pods["u"]
	_, err := f.createAs(t, "v", "api", nil, placeholderContainer())
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no allocation") {
		t.Errorf("the answer is %v", err)
	}

	// As long as the resource is not known as the node's.
	f.pods["plain"] = plain
	if _, err = f.createAs(t, "plain", "api", nil, placeholderContainer()); status.Code(err) != codes.Unavailable {
		t.Errorf("the answer is %v", err)
	}
	if _, err = f.createAs(t, "static", "file", nil, placeholderContainer()); err != nil {
		t.Errorf("a static pod is refused: %v", err)
	}
}

// placeholderContainer is a container for which the kubelet has called a placeholder.
func placeholderContainer() *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
		Annotations: map[string]string{kubeletstate.PlaceholderAnnotation: "true"},
	}
}

// A plugin that reports other NUMA nodes than before names and sorts the same devices otherwise.
func TestTheSameDevicesInOtherGroupsAreTheSame(t *testing.T) {
	const (
		card1, card2 types.ResourceName = "resource/group/numa/none/v.example:card/1/device",
			"resource/group/numa/none/v.example:card/2/device"
		moved1, moved2, moved3 types.ResourceName = "resource/group/numa/1/v.example:card/1/device",
			"resource/group/numa/0/v.example:card/2/device", "resource/group/numa/0/v.example:card/3/device"
	)
	had := []types.ResourceName{card1, card2}
	for _, test := range []struct {
		now  []types.ResourceName
		same bool
	}{
		{[]types.ResourceName{moved2, moved1}, true},
		{[]types.ResourceName{moved3, moved1}, false},
		{[]types.ResourceName{moved1}, false},
		{[]types.ResourceName{moved2, moved3, moved1}, false},
	} {
		if got := sameResources(had, test.now); got != test.same {
			t.Errorf("%v are the same as %v: %t, want %t", test.now, had, got, test.same)
		}
	}
}

// unknownHolders are pods that hold devices which the kubelet does not know, by the resource.
type unknownHolders struct{ byFile, byPlugin map[types.ResourceName]string }

func (h unknownHolders) Holder(resource types.ResourceName, _ string) string {
	return h.byFile[resource]
}

func (h unknownHolders) HostedHolder(resource types.ResourceName, otherThan string) string {
	if otherThan != "u" {
		return "the pod itself"
	}
	return h.byPlugin[resource]
}

// The resource is the kubelet's: its plugin has moved there from kubecri.
func TestAContainerWithADeviceOfTheKubeletsWaitsForPodsThatTheKubeletDoesNotKnow(t *testing.T) {
	const moved types.ResourceName = "vendor.example/moved"
	held := map[types.ResourceName]string{moved: "default/holder"}
	for name, c := range map[string]struct {
		holders unknownHolders
		says    string // empty for a container that starts
	}{
		"no pod holds one": {},
		"a pod does by a plugin file": {
			unknownHolders{byFile: held}, "pod default/holder holds a device of it by a plugin file of kubecri",
		},
		"a pod does by a plugin that was registered with kubecri": {
			unknownHolders{byPlugin: held},
			"pod default/holder holds a device of it by a device plugin that registered with kubecri",
		},
		"a pod holds one of another resource": {
			unknownHolders{byPlugin: map[types.ResourceName]string{hostedResource: "default/holder"}}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newVendorFixture(t, true)
			f.Admission.Holders = c.holders
			pod := f.pods["u"]
			pod.Requests = map[string][]types.ResourceName{"main": {moved}}
			f.pods["u"] = pod
			_, err := f.create(t, "u", "main", "api", nil)
			if want := c.says != ""; want != (status.Code(err) == codes.Unavailable) ||
				want && !strings.Contains(err.Error(), c.says) || !want && err != nil {
				t.Errorf("the answer is %v", err)
			}
		})
	}
}

// morePods are pods of a node that has one more device resource.
type morePods struct {
	Pods
	name types.ResourceName
}

// DeviceResources implements Pods.
func (p morePods) DeviceResources() (names map[types.ResourceName]bool, all bool) {
	names, all = p.Pods.DeviceResources()
	names = maps.Clone(names)
	names[p.name] = true
	return names, all
}

// A plugin has registered with the kubelet just now, and kubecri has not noticed.
func TestAContainerNeverHasDevicesOfOneResourceFromBothTheKubeletAndKubecri(t *testing.T) {
	const moved types.ResourceName = "vendor.example/moved"
	for name, c := range map[string]struct {
		given   []firewall.KubeletInjection
		unknown error
		holders unknownHolders
		ours    types.ResourceName // is kubecri's, too
		side    bool               // it is another container of the pod, without devices of kubecri
		code    codes.Code
		says    string
	}{
		"the kubelet gave it one of the same": {
			given: []firewall.KubeletInjection{{Resource: hostedResource}},
			code:  codes.FailedPrecondition, says: "gave it a device of vendor.example/card, too",
		},
		"the kubelet gave it one before the resource moved here": {
			given:   []firewall.KubeletInjection{{Resource: moved}},
			holders: unknownHolders{byPlugin: map[types.ResourceName]string{moved: "default/holder"}}, ours: moved,
		},
		"the kubelet gave it one of another": {given: []firewall.KubeletInjection{{Resource: moved}}},
		"the kubelet gave it one that another pod may hold": {
			given:   []firewall.KubeletInjection{{Resource: moved}},
			holders: unknownHolders{byPlugin: map[types.ResourceName]string{moved: "default/holder"}},
			code:    codes.Unavailable, says: "pod default/holder holds a device of it",
		},
		"the kubelet gave it one that another pod may hold, and kubecri none": {
			given: []firewall.KubeletInjection{{Resource: moved}}, side: true,
			holders: unknownHolders{byPlugin: map[types.ResourceName]string{moved: "default/holder"}},
			code:    codes.Unavailable, says: "pod default/holder holds a device of it",
		},
		"what the kubelet gave it is not known": {
			unknown: errors.New("unreadable"), code: codes.Unavailable, says: "unreadable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, v := newVendorFixture(t, true)
			f.injections, f.unknown, f.Admission.Holders = c.given, c.unknown, c.holders
			f.Admission.Pods = morePods{f.Admission.Pods, c.ours}
			annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
			container := "main"
			if c.side {
				container = "side"
				spec := f.pods["u"]
				spec.Containers = append(spec.Containers, pods.Container{Name: container})
				f.pods["u"] = spec
			}
			_, err := f.create(t, "u", container, "api", annotations)
			if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("the answer is %v, want %v with %q", err, c.code, c.says)
			}
			if err != nil && len(v.requests) > 0 {
				t.Errorf("the plugin was called for %q", v.requests)
			}
			if yielded := slices.Contains(f.yielded, hostedResource); yielded != (c.code == codes.FailedPrecondition) {
				t.Errorf("the resource is left to the kubelet: %t", yielded)
			}
		})
	}
}

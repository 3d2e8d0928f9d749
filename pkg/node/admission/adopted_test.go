// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	type given = []types.ResourceName
	const (
		elsewhere types.ResourceName = "resource/group/numa/1/vendor.example:card/card-7/device"
		another   types.ResourceName = "resource/group/numa/0/vendor.example:card/card-8/device"
	)
	for name, test := range map[string]struct {
		container string
		given     given
		err       error
		want      Outcome
		code      codes.Code
		says      string
		asks      []string // what the plugin is called with
	}{
		"with its device":                  {container: "main", given: given{hostedCard}, want: Isolated},
		"with its device, in other groups": {container: "main", given: given{elsewhere}, want: Isolated},
		"a container that never had one":   {container: "side", want: Isolated},
		"a debug container":                {container: "debugger", want: Isolated},
		"with another device": {
			container: "main", given: given{another}, want: Refused, code: codes.FailedPrecondition, says: "card-8",
		},
		"with one more": {
			container: "main", given: given{hostedCard, another}, want: Refused,
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
			if !slices.Equal(v.asked, test.asks) {
				t.Errorf("the plugin was asked %q, want %q", v.asked, test.asks)
			}
		})
	}
}

// A pod that somebody else binds after the resource has moved is no adopted pod: the kubelet has
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

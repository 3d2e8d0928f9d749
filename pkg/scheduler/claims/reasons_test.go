// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"
)

const ofOtherRoots = `device.attributes["resource.kubernetes.io"].pcieRoot  ==  "7"`

func selectors(expressions ...string) []resourceapi.DeviceSelector {
	var all []resourceapi.DeviceSelector
	for _, expression := range expressions {
		all = append(all, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	}
	return all
}

func TestReasonsNameRequestSelectorsHoldersAndAlternatives(t *testing.T) {
	foreign := claim("foreign", 1, "dev-3")
	foreign.Namespace = "other"
	const ofRoot0 = `device.attributes["resource.kubernetes.io"].pcieRoot == "0"`
	for name, test := range map[string]struct {
		change func(*resourceapi.ResourceClaim)
		want   string
	}{
		"too few are there": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Count = 5
		}, `have too few devices for request "r" of claim "new" (5 of class "gpu", best: 4 there, 1 free)`},
		"held by claims, those of other namespaces without names": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Count = 2
		}, `have too few devices for request "r" of claim "new" (2 of class "gpu", best: 1 free of 4, held by ` +
			`claims one, two and 1 claim of other namespaces)`},
		"held by a claim, of those that match": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Selectors = selectors(ofRoot0)
		}, `have too few devices for request "r" of claim "new" (1 of class "gpu", best: 0 free of 2 that match, ` +
			`held by claims one, two)`},
		"a selector matches none": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Selectors = selectors(ofOtherRoots)
		}, `have too few devices for request "r" of claim "new" (1 of class "gpu", best: 4 there, 1 free, 0 match ` +
			"`device.attributes[\"resource.kubernetes.io\"].pcieRoot == \"7\"`)"},
		"selectors match apart, not together": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Selectors = selectors(ofRoot0, ofOtherRoots+` || device.driver == "x"`)
		}, `have too few devices for request "r" of claim "new" (1 of class "gpu", best: 4 there, 1 free, 2 match ` +
			"`device.attributes[\"resource.kubernetes.io\"].pcieRoot == \"0\"`, 0 match " +
			"`device.attributes[\"resource.kubernetes.io\"].pcieRoot == \"7\" || device.driver == \"x\"`, " +
			"0 match all)"},
		"alternatives": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "r"}
			for name, count := range []int64{5, 3} {
				c.Spec.Devices.Requests[0].FirstAvailable = append(c.Spec.Devices.Requests[0].FirstAvailable,
					resourceapi.DeviceSubRequest{
						Name: fmt.Sprintf("a%d", name), DeviceClassName: "gpu", Count: count,
						AllocationMode: resourceapi.DeviceAllocationModeExactCount,
					})
			}
		}, `have too few devices for request "r" of claim "new" (alternative "a0": 5 of class "gpu", best: 4 ` +
			`there, 1 free; alternative "a1": 3 of class "gpu", best: 1 free of 4, held by claims one, two and 1 ` +
			`claim of other namespaces)`},
		"all": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
		}, `have too few devices for request "r" of claim "new" (all of class "gpu", best: 1 free of 4, held by ` +
			`claims one, two and 1 claim of other namespaces)`},
		"taints": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Selectors = selectors(
				`!("resource.kubernetes.io" in device.attributes) || true`)
			c.Annotations = map[string]string{"taint": ""}
		}, `have too few devices for request "r" of claim "new" (1 of class "gpu", best: 1 free of 4 that match, 1 ` +
			`with taints that it does not tolerate, held by claims one, two and 1 claim of other namespaces)`},
	} {
		t.Run(name, func(t *testing.T) {
			requested := claim("new", 1)
			test.change(requested)
			f := newFixture(t, func(slice *resourceapi.ResourceSlice) {
				if _, taints := requested.Annotations["taint"]; taints {
					slice.Spec.Devices[1].Taints = []resourceapi.DeviceTaint{{
						Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule,
					}}
				}
			}, requested, claim("one", 1, "dev-0"), claim("two", 1, "dev-2"), foreign)
			pod := podOf("", "new")
			if got := f.Filter(t.Context(), f.begin(pod), pod, f.node).Message(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestNodesWithTheSameShortageHaveTheTextOfTheNearest(t *testing.T) {
	small := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: gpus, NodeName: ptr.To("n2"), Pool: resourceapi.ResourcePool{Name: "n2", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "dev-0"}},
		},
	}
	f := newFixture(t, nil, claim("new", 5), claim("one", 1, "dev-0"), small)
	other := framework.NewNodeInfo()
	other.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	none := framework.NewNodeInfo()
	none.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}})
	pod := podOf("", "new")
	state := f.begin(pod)
	first := f.Filter(t.Context(), state, pod, other)
	second := f.Filter(t.Context(), state, pod, f.node)
	simulated := f.Filter(t.Context(), state.Clone(), pod, other)
	const want = `have too few devices for request "r" of claim "new" (5 of class "gpu", best: 4 there, 3 free)`
	for name, got := range map[string]string{
		"first": first.Message(), "second": second.Message(), "simulated": simulated.Message(),
	} {
		if got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got, want := f.Filter(t.Context(), state, pod, none).Message(),
		`have too few devices for request "r" of claim "new" (5 of class "gpu", none there)`; got != want {
		t.Errorf("without devices: %s", got)
	}
}

func TestReasonsNameConstraintsAndClaimsThatPinNodes(t *testing.T) {
	apart := claim("apart", 3)
	apart.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{
		MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot")),
	}}
	elsewhere := claim("elsewhere", 1, "dev-0")
	elsewhere.Status.Allocation.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchFields: []v1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n2"},
		}},
	}}}
	f := newFixture(t, nil, apart, claim("many", 3), claim("more", 2), elsewhere, claim("own", 1))
	for _, test := range []struct {
		pod  *v1.Pod
		want string
	}{
		{podOf("", "apart"), "have devices for each request of the claims, but no choice for all of them together " +
			"that has the same resource.kubernetes.io/pcieRoot"},
		{podOf("", "many", "more"), "have devices for each request of the claims, but not for all of them together"},
		{podOf("", "own", "elsewhere"), `cannot use the devices that claim "elsewhere" has`},
	} {
		if got := f.Filter(t.Context(), f.begin(test.pod), test.pod, f.node).Message(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

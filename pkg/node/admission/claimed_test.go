// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// bind has the API server's watch deliver a pod with these annotations.
func (f *fixture) bind(uid string, pod pods.Pod, annotations map[string]string) {
	pod.Name = "pod-" + uid
	pod.Allocation, pod.Seal = annotations[deviceinfo.Annotation], annotations[seal.Annotation]
	f.pods[uid] = pod
}

func TestAPodClaimsWhatItWillBeGrantedAndHoldsNothingYet(t *testing.T) {
	f := fixtureWith(t, &cards{}, &widgets{})
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	f.bind("u", requesting, annotations)

	claimed := f.Claimed([]string{"u", "unknown"}, nil)

	if len(claimed) != 1 || f.Grants.Has("u") || len(f.outcomes)+len(f.warnings) > 0 {
		t.Fatalf("claimed %v, granted %t, outcomes %v, warnings %q", claimed, f.Grants.Has("u"), f.outcomes, f.warnings)
	}
	if _, err := f.create(t, "u", "main", sourceAPI, annotations); err != nil {
		t.Fatal(err)
	}
	granted, _, err := f.Grants.Granted(t.Context(), "u")
	had, has := claimed[0].PodInfo.RunningContainers, granted.PodInfo.RunningContainers
	if err != nil || !maps.EqualFunc(had, has, sameDevices) {
		t.Errorf("granted %v, %v; claimed %v", has, err, had)
	}
	if again := f.Claimed([]string{"u"}, []grants.Allocation{granted}); len(again) > 0 {
		t.Errorf("a pod with a grant claims %v", again)
	}
}

func TestAPodClaimsNothingThatItWouldNotBeGranted(t *testing.T) {
	of := func(t *testing.T, node string, card types.ResourceName) map[string]string {
		return allocation(t, "pod-u", node, map[string][]types.ResourceName{"main": {card}})
	}
	holder := grants.Allocation{PodUID: "h", PodInfo: &types.PodInfo{
		RunningContainers: map[string]types.ContainerInfo{"main": {
			DevRequests: types.ResourceList{card0: 1}, AllocateFrom: types.ResourceLocation{card0: card0},
		}},
	}}
	for name, test := range map[string]struct {
		pod         pods.Pod
		annotations map[string]string
		granted     []grants.Allocation
		mode        seal.Mode
	}{
		"no annotation": {pod: requesting},
		"requests alone": {
			pod: plain, annotations: map[string]string{deviceinfo.Annotation: `{"requests":{}}`},
		},
		"not JSON":                     {pod: requesting, annotations: map[string]string{deviceinfo.Annotation: "{"}},
		"another node":                 {pod: requesting, annotations: of(t, "node-2", card0)},
		"an unhealthy device":          {pod: requesting, annotations: of(t, "node-1", "resource/group/gpu/2/cards")},
		"a device that is not there":   {pod: requesting, annotations: of(t, "node-1", "resource/group/gpu/7/cards")},
		"fewer kinds than it requests": {pod: both, annotations: of(t, "node-1", card0)},
		"a device of another pod": {
			pod: requesting, annotations: of(t, "node-1", card0), granted: []grants.Allocation{holder},
		},
		"no seal": {pod: requesting, annotations: of(t, "node-1", card0), mode: seal.Enforce},
		"the seal of another key": {
			pod: requesting, annotations: sealed(t, 2, "u", of(t, "node-1", card0), nil), mode: seal.Enforce,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &cards{}, &widgets{})
			results, warnings := f.withSeals(test.mode, nil)
			f.bind("u", test.pod, test.annotations)
			if claimed := f.Claimed([]string{"u"}, test.granted); len(claimed) > 0 {
				t.Errorf("claimed %v", claimed)
			}
			if reports := slices.Concat(*results, *warnings, f.verified, f.warnings); len(reports) > 0 {
				t.Errorf("reported %q", reports)
			}
		})
	}
}

func TestAPodWithAValidSealClaimsItsDevices(t *testing.T) {
	for mode, number := range map[seal.Mode]byte{seal.Enforce: 1, seal.Warn: 2} {
		f := fixtureWith(t, &cards{}, &widgets{})
		results, warnings := f.withSeals(mode, nil)
		annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
		f.bind("u", requesting, sealed(t, number, "u", annotations, nil))
		if claimed := f.Claimed([]string{"u"}, nil); len(claimed) != 1 {
			t.Errorf("%s: claimed %v", mode, claimed)
		}
		if reports := slices.Concat(*results, *warnings, f.verified); len(reports) > 0 {
			t.Errorf("%s: reported %q", mode, reports)
		}
	}
}

// A pod of another scheduler, or one that names its node, may have any text in the annotation.
func TestReadingClaimsRefusesNoContainer(t *testing.T) {
	for name, text := range map[string]string{
		"an empty object": `{}`, "no requests": `{"requests":{}}`, "a name alone": `{"podname":"x"}`,
		"an option alone": `{"requests":{"option":1}}`,
		"no devices":      `{"runningcontainer":{"main":{"allocatefrom":{}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &cards{}, &widgets{})
			annotations := map[string]string{deviceinfo.Annotation: text}
			f.bind("u", plain, annotations)
			for range 2 {
				if claimed := f.Claimed([]string{"u"}, nil); len(claimed) > 0 {
					t.Errorf("claimed %v", claimed)
				}
			}
			if _, err := f.create(t, "u", "main", sourceAPI, annotations); err != nil {
				t.Error(err)
			}
			if f.Grants.Has("u") || len(f.warnings) > 0 {
				t.Errorf("granted %t, warnings %q", f.Grants.Has("u"), f.warnings)
			}
		})
	}
}

// A pod whose allocation is refused now may be judged otherwise when its container is created.
func TestReadingClaimsRemembersNoRefusal(t *testing.T) {
	f := fixtureWith(t, &cards{}, &widgets{})
	f.withSeals(seal.Enforce, nil)
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	f.bind("u", requesting, annotations)
	if claimed := f.Claimed([]string{"u"}, nil); len(claimed) > 0 {
		t.Errorf("claimed %v", claimed)
	}
	pod := newPodRef(Pod{UID: "u", Annotations: annotations})
	if err := f.remembered(pod); err != nil {
		t.Errorf("it is remembered that %v", err)
	}
}

// countedSeals counts how often a seal was verified.
type countedSeals struct {
	Seals
	verified int
}

// Verifier implements Seals.
func (c *countedSeals) Verifier() (*seal.Verifier, error) {
	c.verified++
	return c.Seals.Verifier()
}

// Most pods of a node have a grant, and agents list them every few seconds.
func TestOnlyPodsWithoutAGrantAreVerifiedWhenClaimsAreRead(t *testing.T) {
	f := fixtureWith(t, &cards{}, &widgets{})
	f.withSeals(seal.Enforce, nil)
	counted := &countedSeals{Seals: f.Seals}
	f.Seals = counted
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	f.bind("u", requesting, sealed(t, 1, "u", annotations, nil))
	if claimed := f.Claimed([]string{"u"}, nil); len(claimed) != 1 || counted.verified != 1 {
		t.Fatalf("claimed %v, verified %d times", claimed, counted.verified)
	}
	granted := []grants.Allocation{{PodUID: "u", PodInfo: types.NewPodInfo()}}
	if claimed := f.Claimed([]string{"u"}, granted); len(claimed) > 0 || counted.verified != 1 {
		t.Errorf("with a grant: claimed %v, verified %d times", claimed, counted.verified)
	}
}

// BenchmarkClaimed is a call of PodResources on a node with 110 pods without a grant, each with a
// sealed allocation of one device to each of 100 containers.
func BenchmarkClaimed(b *testing.B) {
	const count, containers = 110, 100
	f := fixtureWith(b, &cards{}, &widgets{})
	f.withSeals(seal.Enforce, nil)
	var uids []string
	for i := range count {
		uid := fmt.Sprint(i)
		pod, from := pods.Pod{Namespace: "default"}, map[string][]types.ResourceName{}
		for j := range containers {
			name := fmt.Sprintf("c%d", j)
			pod.Containers = append(pod.Containers, pods.Container{Name: name})
			from[name] = []types.ResourceName{card0}
		}
		f.bind(uid, pod, sealed(b, 1, uid, allocation(b, "pod-"+uid, "node-1", from), nil))
		uids = append(uids, uid)
	}
	b.ReportAllocs()
	for b.Loop() {
		if claimed := f.Claimed(uids, nil); len(claimed) > 0 {
			b.Fatalf("%d pods claim one device", len(claimed))
		}
	}
}

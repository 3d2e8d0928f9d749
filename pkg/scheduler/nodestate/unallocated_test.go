// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func TestPodsThatWereBoundWithoutTheirDevicesAreFound(t *testing.T) {
	const requests = `{"runningcontainer":{"main":{"requests":{"gpu/a/cards":1}}}}`
	annotated := func(pod *v1.Pod, annotation string) *v1.Pod {
		pod.Annotations = map[string]string{deviceinfo.Annotation: annotation}
		return pod
	}
	f := newFixture(t)
	other := f.pod("other", 1)
	other.Spec.Containers[0].Resources.Requests = v1.ResourceList{
		"vendor.example/thing": other.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"],
	}
	first := f.pod("first", 0)
	first.Spec.InitContainers = f.pod("", 1).Spec.Containers
	given := func(to string) *v1.Pod { return f.bound(f.pod("p", 1), "n", allocated(to, "n", "A")) }
	type where struct{ ours, kubelets bool }
	onNone, onOurs, onBoth := where{}, where{ours: true}, where{true, true}
	for name, test := range map[string]struct {
		pod *v1.Pod
		where
	}{
		"it counts GPUs":                  {f.pod("p", 1), onOurs},
		"an init container does":          {first, onOurs},
		"it counts no GPU":                {f.pod("p", 0), onNone},
		"it counts what others serve":     {other, onNone},
		"it was given a GPU":              {given("p"), onNone},
		"it has what another was given":   {given("q"), onNone},
		"its annotation requests a GPU":   {annotated(f.pod("p", 0), requests), onBoth},
		"so it does for the pod":          {annotated(f.pod("p", 0), `{"requests":{"gpu/a/cards":1}}`), onBoth},
		"its annotation requests nothing": {annotated(f.pod("p", 0), `{"runningcontainer":{"main":{}}}`), onNone},
		"its annotation cannot be read":   {annotated(f.pod("p", 0), `{`), onBoth},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			ours := f.node("n", "1", "A")
			for what, node := range map[string]struct {
				*v1.Node
				want bool
			}{
				"ours":                       {ours, test.ours},
				"a kubelet's":                {f.annotatedNode("m", "2", ""), test.kubelets},
				"ours, which reports it":     {f.report(f.node("o", "3", "A"), test.pod.UID, "A"), false},
				"ours, with a report of q":   {f.report(f.node("q", "4", "A"), "q", "A"), test.ours},
				"ours, an unreadable report": {f.reportText(f.node("r", "5", "A"), "["), false},
			} {
				pods := []*v1.Pod{f.pod("plain", 0), test.pod}
				found := f.cache.Unallocated(t.Context(), node.Node, pods)
				if got := len(found) == 1 && found[0] == test.pod; got != node.want || len(found) > 1 {
					t.Errorf("on a node that is %s: %d pods are found, want it to be %v", what, len(found), node.want)
				}
				if pods[1] != test.pod {
					t.Error("the list of pods was changed")
				}
			}
		})
	}
}

// A device plugin of the kubelet's that is away for a moment makes no node ours.
func TestANodeThatCountsNothingForAMomentIsStillItsKubelets(t *testing.T) {
	f := newFixtureOf(t, &gpus{})
	node := f.annotatedNode("n", "1", "")
	node.Status.Capacity = v1.ResourceList{"nvidia.com/gpu": {}}
	f.node("ours", "2", "A")
	if found := f.cache.Unallocated(t.Context(), node, []*v1.Pod{f.pod("p", 1)}); len(found) > 0 {
		t.Errorf("found %d pods", len(found))
	}
}

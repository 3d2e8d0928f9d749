// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// The pods of a group are reserved one after another, from one snapshot, which shows none of them.
func TestThePodsOfAGroupAreGivenDifferentDevices(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A", "B")})
	for _, given := range []struct{ pod, gpu string }{{"one", "B"}, {"two", "A"}} {
		pod := newPod(given.pod, 1)
		f.reserve(pod, "n")
		if got, want := f.plugin.nodes.Reserved("n", pod.UID), gave(given.pod, "n", given.gpu); got != want {
			t.Errorf("reserved for pod %s: %s, want %s", given.pod, got, want)
		}
	}

	// Filter cannot see that they are gone. No event will say so either: the pod must be tried
	// again by itself.
	late := newPod("late", 1)
	state, status := f.fit(late, "n")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	status = f.framework.RunReservePluginsReserve(t.Context(), state, assumed(late, "n"), "n")
	if status.Code() != fwk.Error {
		t.Errorf("Reserve says %v, want an error, so that the pod is scheduled again", status)
	}
}

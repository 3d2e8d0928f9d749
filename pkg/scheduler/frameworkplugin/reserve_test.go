// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"strings"
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

// A container that could not carry its devices in the runtime must not be bound: the node would
// refuse it for good.
func TestAPodWaitsWhoseContainerHasMoreDevicesThanItCanCarry(t *testing.T) {
	var gpus []string
	for i := range 100 {
		gpus = append(gpus, fmt.Sprintf("GPU-%0100d", i))
	}
	f := newFixture(t, []*v1.Node{newNode("n", gpus...)})
	f.reserve(newPod("few", 10), "n")

	pod := newPod("many", 90)
	state, status := f.fit(pod, "n")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	status = f.framework.RunReservePluginsReserve(t.Context(), state, assumed(pod, "n"), "n")
	if status.Code() != fwk.Unschedulable {
		t.Fatalf("Reserve says %v, want that the pod waits", status)
	}
	for _, want := range []string{`runningcontainer["main"]`, "bytes in the container runtime", "at most 7168"} {
		if !strings.Contains(status.Message(), want) {
			t.Errorf("the reason does not have %q: %s", want, status.Message())
		}
	}
	f.framework.RunReservePluginsUnreserve(t.Context(), state, assumed(pod, "n"), "n")
	f.reserve(newPod("others", 20), "n") // nothing is kept for the pod that waits
}

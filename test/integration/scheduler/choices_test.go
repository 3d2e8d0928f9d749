// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/kube"
)

func TestCountsOfLimitsAndAnnotationAreServedTogether(t *testing.T) {
	c := newCluster(t)
	c.host("n1", []string{"g0", "g1", "g2", "g3"}, []string{"n0", "n1"})
	startScheduler(t)
	if got := hostedDevices(t, c.schedule(hostedPod("same", 1, 0, `"nvidia.com/gpu":1`))); got != "g0" {
		t.Errorf("a pod with one count written twice got %q, want g0", got)
	}
	if got := hostedDevices(t, c.schedule(hostedPod("larger", 0, 1, `"vendor.example/nic":2`))); got != "n0 n1" {
		t.Errorf("a pod whose annotation counts two and whose limits count one got %q, want n0 n1", got)
	}
	if got := hostedDevices(t, c.schedule(hostedPod("alone", 0, 0, `"nvidia.com/gpu":1`))); got != "g1" {
		t.Errorf("a pod that counts in its annotation alone got %q, want g1", got)
	}
	smaller := c.schedule(hostedPod("smaller", 2, 0, `"nvidia.com/gpu":1`))
	if got := hostedDevices(t, smaller); got != "g2 g3" {
		t.Errorf("a pod whose limits count two and whose annotation counts one got %q, want g2 g3", got)
	}
	c.awaitEvent(smaller, "RequestMistake", "the container's limits have 2: the 1 here has no effect")
}

func TestAPodGoesWhereItsOptionIsReadOrWaitsWithTheReason(t *testing.T) {
	c := newCluster(t)
	c.host("hosted", []string{"g0", "g1"}, nil)
	c.kubeletsNode("kubelet", 2)
	startScheduler(t)
	required := c.create(hostedPod("required", 2, 0, `"gpu/gpu-generate-topology":1`))
	message := whyUnscheduled(c.await(required, "to be found unschedulable", kube.Unschedulable))
	want := `2 do not read gpu/gpu-generate-topology for nvidia.com/gpu of container "main": leave it out to use them`
	if !strings.Contains(message, want) {
		t.Errorf("the pod's event says %q, want: %s", message, want)
	}
	one := c.schedule(hostedPod("one", 1, 0, `"gpu/gpu-generate-topology":1`))
	nodes := map[string]bool{one.Spec.NodeName: true} // one GPU has no topology
	for _, name := range []string{"a", "b", "c"} {
		pod := hostedPod(name, 1, 0, `"gpu/gpu-generate-topology":0`, `"gpu/of-no-plugin":1`)
		nodes[c.schedule(pod).Spec.NodeName] = true
	}
	if !nodes["hosted"] || !nodes["kubelet"] {
		t.Errorf("pods that require nothing by an option fill only %v", nodes)
	}
	c.node("plugin", 2)
	if got := c.await(required, "to be bound", kube.Scheduled).Spec.NodeName; got != "plugin" {
		t.Errorf("the pod goes to node %q, want that of the plugin", got)
	}
}

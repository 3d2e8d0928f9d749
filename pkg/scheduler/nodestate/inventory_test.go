// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestANodeThatIsDeletedAndComesBackIsAnotherNode(t *testing.T) {
	w := newWorld(t)
	old := w.node("n", "n-1", "A")
	holder := w.bound(w.pod("p", 1), "n", allocated("p", "n", "A"))
	w.want("free", w.free(nodeInfo(old, holder)), "none")
	w.deleteNode(old)
	w.want("free when it is gone", w.free(nodeInfo(old, holder)), "error: node is gone")
	if w.cache.Serves("nvidia.com/gpu") {
		t.Error("a name is served that no node lists")
	}
	if n := w.cache.find("n"); n != nil {
		t.Errorf("the node left %v behind", n)
	}
	fresh := w.node("n", "n-2", "A", "B")
	w.want("free when it is back", w.free(nodeInfo(fresh)), "A B")
	w.want("free in a snapshot from before", w.free(nodeInfo(old, holder)), "B")
	w.cache.Forget(t.Context(), old)
	w.want("free after a late deletion event", w.free(nodeInfo(fresh)), "A B")
	if got := w.plugin.removed.Load(); got != 1 {
		t.Errorf("the plugin was told %d times that the node is gone, want 1", got)
	}
}

func TestAnInventoryNeverGoesBack(t *testing.T) {
	w := newWorld(t)
	old := w.node("n", "n-1", "A", "B")
	latest := w.node("n", "n-1", "A")
	w.want("free in an old snapshot", w.free(nodeInfo(old)), "A")
	w.want("free in the latest", w.free(nodeInfo(latest)), "A")
	if got := w.plugin.added.Load(); got != 2 {
		t.Errorf("the plugin was told %d times, want 2", got)
	}
}

func TestASnapshotAheadOfOurEventHandlerIsBelieved(t *testing.T) {
	w := newWorld(t)
	w.node("n", "n-1", "A")
	ahead := w.node("n", "n-1", "A", "B")
	behind := newWorld(t)
	if err := behind.indexer.Add(ahead); err != nil {
		t.Fatal(err)
	}
	behind.cache.plain.replace(nil, []sdk.ResourceName{"nvidia.com/gpu"})
	behind.want("free", behind.free(nodeInfo(ahead)), "A B")
}

func TestAnInventoryChangesUnderItsHolders(t *testing.T) {
	w := newWorld(t)
	w.node("elsewhere", "e-1", "X")
	pod := w.bound(w.pod("p", 2), "n", allocated("p", "n", "A", "B"))
	step := func(what string, node *v1.Node, want string) {
		t.Helper()
		w.want(what, w.free(nodeInfo(node, pod)), want)
	}
	step("at first", w.node("n", "n-1", "A", "B", "C"), "C")
	step("shrunk below what is used", w.node("n", "n-1", "A"), "none")
	step("deleted", w.annotatedNode("n", "n-1", ""), "none")
	step("back", w.node("n", "n-1", "A", "B", "C"), "C")
	malformed := w.annotatedNode("n", "n-1", "{")
	if got := w.free(nodeInfo(malformed, pod)); !strings.HasPrefix(got, "error: unreadable inventory: ") {
		t.Errorf("malformed: %s", got)
	}
	step("repaired", w.node("n", "n-1", "A", "B", "C"), "C")
}

func TestPluginsAreToldOfAnInventoryOncePerChange(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A")
	step := func(what string, change func(*v1.Node), want int64) {
		t.Helper()
		node = node.DeepCopy()
		node.ResourceVersion = w.nextVersion()
		change(node)
		if err := w.indexer.Update(node); err != nil {
			t.Fatal(err)
		}
		before := w.plugin.added.Load()
		for range 2 {
			w.cache.Observe(t.Context(), node)
			w.free(nodeInfo(node))
		}
		if got := w.plugin.added.Load() - before; got != want {
			t.Errorf("%s: told %d times, want %d", what, got, want)
		}
	}
	step("a heartbeat", func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}} }, 0)
	step("another annotation", func(n *v1.Node) { n.Annotations["x"] = "y" }, 0)
	step("a new capacity", func(n *v1.Node) { n.Status.Capacity = v1.ResourceList{"cpu": apiresource.MustParse("8")} }, 1)
	step("the same capacity, written otherwise", func(n *v1.Node) { n.Status.Capacity = v1.ResourceList{"cpu": apiresource.MustParse("8000m")} }, 0)
	step("a new allocatable", func(n *v1.Node) { n.Status.Allocatable = v1.ResourceList{"cpu": apiresource.MustParse("7")} }, 1)
	step("another node of the name", func(n *v1.Node) { n.UID = "n-2" }, 1)
}

func TestANodeThatAPluginFailsToTakeIsTriedAgainAfterAPause(t *testing.T) {
	w := newWorld(t)
	w.node("elsewhere", "e-1", "X")
	w.plugin.broken.Store(true)
	node := w.node("n", "n-1", "A")
	const failure = `error: inventory not taken: device scheduler "gpus": AddNode: it fails for this node: panic: ouch; ` +
		`it is tried again after a while; check the node's devices, and the plugin (see the scheduler's log)`
	w.want("free", w.free(nodeInfo(node)), failure)
	w.plugin.broken.Store(false)
	w.want("free before the pause is over", w.free(nodeInfo(node)), failure)
	if got := w.plugin.added.Load(); got != 2 {
		t.Errorf("the plugin was told %d times, want 2", got)
	}
	w.clock.Step(addPause)
	w.want("free after the pause", w.free(nodeInfo(node)), "A")
}

func TestNamesAreServedWhileANodeListsThem(t *testing.T) {
	w := newWorld(t)
	const gpu, fpga = "nvidia.com/gpu", "example.com/fpga"
	served := func(what string, wantGPU, wantFPGA bool) {
		t.Helper()
		if w.cache.Serves(gpu) != wantGPU || w.cache.Serves(fpga) != wantFPGA {
			t.Errorf("%s: gpu %t, fpga %t", what, w.cache.Serves(gpu), w.cache.Serves(fpga))
		}
	}
	served("no nodes", false, false)
	one := w.node("n", "n-1", "A")
	two := w.node("m", "m-1", "A")
	served("two nodes with GPUs", true, false)
	w.annotatedNode("n", "n-1", `{"capacity":{"`+fpga+`":1}}`)
	served("one changes over", true, true)
	w.deleteNode(two)
	served("the other goes", false, true)
	w.deleteNode(one)
	served("both are gone", false, false)
}

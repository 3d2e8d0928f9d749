// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestANodeThatIsDeletedAndComesBackIsAnotherNode(t *testing.T) {
	f := newFixture(t)
	old := f.node("n", "n-1", "A")
	holder := f.bound(f.pod("p", 1), "n", allocated("p", "n", "A"))
	f.want("free", f.free(nodeInfo(old, holder)), "none")
	f.deleteNode(old)
	f.want("free when it is gone", f.free(nodeInfo(old, holder)), "error: node is deleted")
	if f.cache.Serves("nvidia.com/gpu") {
		t.Error("a name is served that no node lists")
	}
	if n := f.cache.find("n"); n != nil {
		t.Errorf("the node left %v behind", n)
	}
	fresh := f.node("n", "n-2", "A", "B")
	f.want("free when it is back", f.free(nodeInfo(fresh)), "A B")
	f.want("free in a snapshot from before", f.free(nodeInfo(old, holder)), "B")
	f.cache.Forget(t.Context(), old)
	f.want("free after a late deletion event", f.free(nodeInfo(fresh)), "A B")
	if got := f.plugin.removed.Load(); got != 1 {
		t.Errorf("the plugin was notified %d times that the node is deleted, want 1", got)
	}
}

func TestAnInventoryNeverGoesBack(t *testing.T) {
	f := newFixture(t)
	old := f.node("n", "n-1", "A", "B")
	latest := f.node("n", "n-1", "A")
	f.want("free in an old snapshot", f.free(nodeInfo(old)), "A")
	f.want("free in the latest", f.free(nodeInfo(latest)), "A")
	if got := f.plugin.added.Load(); got != 2 {
		t.Errorf("the plugin was notified %d times, want 2", got)
	}
}

func TestASnapshotAheadOfOurEventHandlerIsBelieved(t *testing.T) {
	f := newFixture(t)
	f.node("n", "n-1", "A")
	ahead := f.node("n", "n-1", "A", "B")
	behind := newFixture(t)
	if err := behind.indexer.Add(ahead); err != nil {
		t.Fatal(err)
	}
	behind.cache.plain.replace(nil, []sdk.ResourceName{"nvidia.com/gpu"})
	behind.want("free", behind.free(nodeInfo(ahead)), "A B")
}

func TestAnInventoryChangesUnderItsHolders(t *testing.T) {
	f := newFixture(t)
	f.node("elsewhere", "e-1", "X")
	pod := f.bound(f.pod("p", 2), "n", allocated("p", "n", "A", "B"))
	step := func(what string, node *v1.Node, want string) {
		t.Helper()
		f.want(what, f.free(nodeInfo(node, pod)), want)
	}
	step("at first", f.node("n", "n-1", "A", "B", "C"), "C")
	step("shrunk below what is used", f.node("n", "n-1", "A"), "none")
	step("deleted, so that the kubelet counts them", f.annotatedNode("n", "n-1", ""), "")
	step("back", f.node("n", "n-1", "A", "B", "C"), "C")
	malformed := f.annotatedNode("n", "n-1", "{")
	if got := f.free(nodeInfo(malformed, pod)); !strings.HasPrefix(got, "error: unreadable inventory: ") {
		t.Errorf("malformed: %s", got)
	}
	step("repaired", f.node("n", "n-1", "A", "B", "C"), "C")
}

func TestPluginsAreNotifiedOfAnInventoryOncePerChange(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A")
	step := func(what string, change func(*v1.Node), want int64) {
		t.Helper()
		node = node.DeepCopy()
		node.ResourceVersion = f.nextVersion()
		change(node)
		if err := f.indexer.Update(node); err != nil {
			t.Fatal(err)
		}
		before := f.plugin.added.Load()
		for range 2 {
			f.cache.Observe(t.Context(), node)
			f.free(nodeInfo(node))
		}
		if got := f.plugin.added.Load() - before; got != want {
			t.Errorf("%s: reported %d times, want %d", what, got, want)
		}
	}
	step("a heartbeat", func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}} }, 0)
	step("another annotation", func(n *v1.Node) { n.Annotations["x"] = "y" }, 0)
	step("a new capacity", func(n *v1.Node) { n.Status.Capacity = v1.ResourceList{"cpu": apiresource.MustParse("8")} },
		1)
	step("the same capacity, written otherwise",
		func(n *v1.Node) { n.Status.Capacity = v1.ResourceList{"cpu": apiresource.MustParse("8000m")} }, 0)
	step("a new allocatable",
		func(n *v1.Node) { n.Status.Allocatable = v1.ResourceList{"cpu": apiresource.MustParse("7")} }, 1)
	step("another node of the name", func(n *v1.Node) { n.UID = "n-2" }, 1)
}

func TestANodeThatAPluginFailsToTakeIsTriedAgainAfterAPause(t *testing.T) {
	f := newFixture(t)
	f.node("elsewhere", "e-1", "X")
	f.plugin.broken.Store(true)
	node := f.node("n", "n-1", "A")
	const failure = `error: inventory not taken: device scheduler "gpus": AddNode: ` +
		`it fails for this node: panic: ouch; ` +
		`it is tried again after a while; check the node's devices, and the plugin (see the scheduler's log)`
	f.want("free", f.free(nodeInfo(node)), failure)
	_, err := f.cache.State(t.Context(), nodeInfo(node), f.pod("q", 1), true)
	if after := pluginhost.RetryAfter(err); after < pluginhost.AddNodeInterval-time.Second {
		t.Errorf("pods are tried again after %v, when nothing can have changed", after)
	}
	f.plugin.broken.Store(false)
	f.want("free before the pause is over", f.free(nodeInfo(node)), failure)
	if got := f.plugin.added.Load(); got != 2 {
		t.Errorf("the plugin was notified %d times, want 2", got)
	}
	f.clock.Step(pluginhost.AddNodeInterval)
	f.want("free after the pause", f.free(nodeInfo(node)), "A")
}

func TestNamesAreServedWhileANodeListsThem(t *testing.T) {
	f := newFixture(t)
	const gpu, fpga = "nvidia.com/gpu", "example.com/fpga"
	served := func(what string, wantGPU, wantFPGA bool) {
		t.Helper()
		if f.cache.Serves(gpu) != wantGPU || f.cache.Serves(fpga) != wantFPGA {
			t.Errorf("%s: gpu %t, fpga %t", what, f.cache.Serves(gpu), f.cache.Serves(fpga))
		}
	}
	served("no nodes", false, false)
	one := f.node("n", "n-1", "A")
	two := f.node("m", "m-1", "A")
	served("two nodes with GPUs", true, false)
	f.annotatedNode("n", "n-1", `{"capacity":{"`+fpga+`":1}}`)
	served("one changes over", true, true)
	f.deleteNode(two)
	served("the other goes", false, true)
	f.deleteNode(one)
	served("both are gone", false, false)
}

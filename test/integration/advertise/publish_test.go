// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

func TestChangesOfDevicesArePublishedWithinTwoSecondsInTwoPatchesEach(t *testing.T) {
	n, _ := publish(t, "node-1", register(t, "node-1"), newGPUs(3))
	n.await("the first inventory")
	unhealthy := newGPUs(4)
	unhealthy[1].Unhealthy = true
	changes := []struct {
		what string
		gpus []gpu.GPU
	}{
		{"a GPU appears", newGPUs(4)}, {"it becomes unhealthy", unhealthy}, {"it recovers", newGPUs(4)},
		{"one vanishes", newGPUs(3)},
		{"two vanish", newGPUs(1)}, {"three appear", newGPUs(4)}, {"one becomes unhealthy again", unhealthy},
		{"it is healthy again", newGPUs(4)},
		{"all vanish", nil},
	}
	var took []time.Duration
	for i, change := range changes {
		n.set(change.gpus)
		took = append(took, n.await(change.what))
		n.awaitPatches(int64(2 * (i + 2)))
	}
	// The median, so that a busy machine does not fail a test.
	slices.Sort(took)
	if median := took[len(took)/2]; median > 2*time.Second {
		t.Errorf("published after %v, the median of %v; want at most 2s", median, took)
	}
}

// extended are the extended resources of a node with GPUs: quotas count their memory and cores by
// HAMi's names.
var extended = []string{string(gpu.Resource), "nvidia.com/gpucores", "nvidia.com/gpumem"}

func TestOnlyWhatIsOursChangesAndCleanupLeavesTheNodeAsItWas(t *testing.T) {
	kubelet := register(t, "node-1")
	before := furnish(t, "node-1")
	n, stop := publish(t, "node-1", kubelet, newGPUs(2))
	n.await("the inventory")
	if diff := cmp.Diff(before, others(n.now())); diff != "" {
		t.Errorf("publishing changed what is not ours (-before +after):\n%s", diff)
	}

	// What a kubelet does when it registers: extended resources that it does not know are set to
	// zero.
	object := n.now()
	object.Status.Capacity[corev1.ResourceName(gpu.Resource)] = resource.MustParse("0")
	if _, err := server.Admin.CoreV1().Nodes().UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.await("what the kubelet took away")

	stop()
	names, found, err := advertise.Withdraw(t.Context(), kubelet, "node-1")
	if err != nil || !found || !slices.Equal(names, extended) {
		t.Fatalf("clean-up with the kubelet's credentials: %v, found=%v, %v", names, found, err)
	}
	after := n.now()
	after.ResourceVersion, after.ManagedFields = "", nil
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("publishing and cleaning up changed the node (-before +after):\n%s", diff)
	}
}

// furnish gives the node what other components put on nodes, and returns it.
func furnish(t *testing.T, name string) *corev1.Node {
	t.Helper()
	nodes := server.Admin.CoreV1().Nodes()
	object, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Annotations, object.Labels = map[string]string{"example.com/note": "kept"},
		map[string]string{"example.com/zone": "a"}
	if object, err = nodes.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	counts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"),
		"example.com/nic": resource.MustParse("2")}
	object.Status.Capacity, object.Status.Allocatable = counts, counts
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady"}}
	if object, err = nodes.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return others(object)
}

// others returns what of a node is not kubecri's.
func others(object *corev1.Node) *corev1.Node {
	object = object.DeepCopy()
	object.ResourceVersion, object.ManagedFields = "", nil
	delete(object.Annotations, deviceinfo.Annotation)
	for _, name := range extended {
		delete(object.Status.Capacity, corev1.ResourceName(name))
		delete(object.Status.Allocatable, corev1.ResourceName(name))
	}
	return object
}

func TestANodesCredentialsReachItsOwnNodeOnly(t *testing.T) {
	first := register(t, "node-1")
	n, _ := publish(t, "node-2", register(t, "node-2"), newGPUs(1))
	n.await("the inventory")
	body := []byte(`{"metadata":{"annotations":{"` + deviceinfo.Annotation + `":"{}"}}}`)
	_, err := first.CoreV1().Nodes().Patch(t.Context(), "node-2", apitypes.MergePatchType, body,
		metav1.PatchOptions{}, "status")
	if !apierrors.IsForbidden(err) {
		t.Errorf("a node writes another's inventory: %v, want it forbidden", err)
	}
	if _, _, err := advertise.Withdraw(t.Context(), first, "node-2"); !apierrors.IsForbidden(err) {
		t.Errorf("a node takes away another's inventory: %v, want it forbidden", err)
	}
	if err := n.shows(); err != nil {
		t.Errorf("and yet: %v", err)
	}
}

func TestAThousandGPUsArePublishedAndReadBack(t *testing.T) {
	n, _ := publish(t, "node-1", register(t, "node-1"), newGPUs(1000))
	n.await("the inventory")
	info, err := deviceinfo.DecodeNode(n.now().Annotations[deviceinfo.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	if got := len(info.Allocatable); got != 3*1000+1 {
		t.Errorf("%d allocatable resources, want cards, memory and cores of each GPU and their count", got)
	}
}

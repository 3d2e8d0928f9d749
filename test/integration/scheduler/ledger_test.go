// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// inventory returns the annotation of a node that lists this many GPUs.
func inventory(t *testing.T, node string, gpus int) string {
	t.Helper()
	info := types.NewNodeInfoWithName(node)
	gpu.Publish(info, gpu.Resource, listed(node, gpus))
	value, err := deviceinfo.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// list makes a node list this many GPUs; none for 0. It counts them while it lists them: what it
// counted alone would be its kubelet's.
func (c *cluster) list(node string, gpus int) {
	c.Helper()
	annotate := func(value any) {
		c.Helper()
		c.patch(node, map[string]any{"annotations": map[string]any{deviceinfo.Annotation: value}})
	}
	if gpus > 0 {
		annotate(inventory(c.T, node, gpus))
	}
	nodes := c.CoreV1().Nodes()
	c.until("the node to count its GPUs", func(ctx context.Context) (bool, error) {
		found, err := nodes.Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		count := *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		found.Status.Capacity[corev1.ResourceName(gpu.Resource)] = count
		found.Status.Allocatable = found.Status.Capacity
		if _, err = nodes.UpdateStatus(ctx, found, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
	if gpus == 0 {
		annotate(nil)
	}
}

// sameGPUs has a driver publish the first GPUs of a node, by their UUIDs, and then others: the
// claims' dev-0 is the GPU 0.
func (c *cluster) sameGPUs(node string, same, others int) {
	c.Helper()
	c.devicesOfDriver(node, make([]string, same+others)...)
	api := c.ResourceV1().ResourceSlices()
	slice, err := api.Get(c.Context(), node+"-"+claimDriver, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for i := range same {
		id := fmt.Sprintf("%s-gpu-%d", node, i)
		slice.Spec.Devices[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": {StringValue: &id},
		}
	}
	slice.Spec.Pool.Generation++
	if _, err := api.Update(c.Context(), slice, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// unclaim deletes the pod of a claim, and then deallocates the claim.
func (c *cluster) unclaim(pod *corev1.Pod) {
	c.Helper()
	c.delete(pod)
	c.deallocate(c.Context(), pod.Name)
}

func TestClaimsGetNoDeviceThatItsNodeLists(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	c.sameGPUs("n1", 2, 2)
	startSchedulerWith(t, []string{chooses})
	if got := c.claimed(c.schedule(c.claimant("pair", 2))); got != "dev-2 dev-3" {
		t.Errorf("the claim has %s", got)
	}
	late := c.create(c.claimant("late", 1))
	c.awaitFailure(late, `have too few devices for request "devices" of claim "late" (1 of class `+
		`"claims.example.com", best: 0 free of 4, held by claim pair and KubeDevice, which allocates 2 of them itself)`)
	all := c.schedule(newPod("all", 4))
	if got := devices(all); len(strings.Fields(got)) != 4 {
		t.Errorf("a pod that requests all GPUs has %s", got)
	}
	c.delete(all)
	c.list("n1", 0)
	if got := c.claimed(c.await(late, "to be bound", kube.Scheduled)); got != "dev-0" {
		t.Errorf("when the node lists no device, the claim has %s", got)
	}
}

// Upstream's plugin chooses, and takes the first device.
func TestUpstreamsChoiceOfADeviceThatItsNodeListsIsRefused(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	c.sameGPUs("n1", 1, 1)
	startScheduler(t)
	pod := c.create(c.claimant("one", 1))
	c.awaitFailure(pod, "would give a claim of the pod device claims.example.com/n1/dev-0, which KubeDevice allocates "+
		"there")
	claim, err := c.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || claim.Status.Allocation != nil {
		t.Errorf("the claim has %+v (%v)", claim.Status, err)
	}
	c.list("n1", 0)
	if got := c.claimed(c.await(pod, "to be bound", kube.Scheduled)); got != "dev-0" {
		t.Errorf("when the node lists no device, the claim has %s", got)
	}
}

func TestANodeMovesFromClaimsWhilePodsRun(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	c.list("n1", 0)
	c.sameGPUs("n1", 4, 0)
	scheduler := startSchedulerWith(t, []string{chooses})
	old := c.schedule(c.claimant("old", 3))
	if got := c.claimed(old); got != "dev-0 dev-1 dev-2" {
		t.Fatalf("the claim has %s", got)
	}
	c.list("n1", 4)
	c.awaitKnown("n1")
	if got := devices(c.schedule(newPod("first", 1))); got != "n1-gpu-3" {
		t.Errorf("next to the claim, a pod has %s", got)
	}
	second := c.create(newPod("second", 1))
	c.awaitFailure(second, "have 3 GPUs that resource claims hold")
	scheduler.kill()
	startSchedulerWith(t, []string{chooses})
	third := c.create(newPod("third", 1))
	c.awaitFailure(third, "have 3 GPUs that resource claims hold")
	c.unclaim(old)
	for _, pod := range []*corev1.Pod{second, third} {
		c.await(pod, "to be bound when the claim is deallocated", kube.Scheduled)
	}
	c.check()
}

func TestANodeMovesToClaimsWhilePodsRun(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	scheduler := startSchedulerWith(t, []string{chooses})
	pod := c.schedule(newPod("old", 2))
	c.list("n1", 0)
	c.sameGPUs("n1", 4, 0)
	want := "dev-2 dev-3"
	if devices(pod) == "n1-gpu-2 n1-gpu-3" {
		want = "dev-0 dev-1"
	}
	c.awaitKnown("n1")
	if got := c.claimed(c.schedule(c.claimant("pair", 2))); got != want {
		t.Errorf("next to a pod with %s, the claim has %s", devices(pod), got)
	}
	scheduler.kill()
	startSchedulerWith(t, []string{chooses})
	late := c.create(c.claimant("late", 1))
	c.awaitFailure(late, "KubeDevice, which allocates 2 of them itself")
	c.delete(pod)
	c.await(late, "to be bound when the pod is gone", kube.Scheduled)
}

// Pods of both ways come and go, and the node moves from one way to the other and back, while the
// scheduler is killed again and again.
func TestNoDeviceIsAllocatedBothWaysThoughTheSchedulerIsKilled(t *testing.T) {
	const seed, rounds, gpus = 7, 6, 8
	r := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t)
	nodes := []string{"n1", "n2"}
	for _, node := range nodes {
		c.node(node, gpus)
		c.sameGPUs(node, gpus, 0)
	}
	ways := map[bool]int{}
	for round := range rounds {
		scheduler := startSchedulerWith(t, []string{chooses})
		for i := range 12 {
			name := fmt.Sprintf("p%d-%02d", round, i)
			if r.IntN(2) == 0 {
				c.create(c.claimant(name, int64(1+r.IntN(2))))
			} else {
				c.create(newPod(name, int64(1+r.IntN(2))))
			}
		}
		for range 4 {
			if r.IntN(2) == 0 {
				c.list(nodes[r.IntN(2)], gpus*r.IntN(2))
			}
			c.until("a pod to be bound", func(context.Context) (bool, error) {
				return slices.ContainsFunc(c.pods(), func(pod corev1.Pod) bool { return kube.Scheduled(&pod) }), nil
			})
			c.checkBothWays(ways)
			if pod := c.bound(); len(pod.Spec.ResourceClaims) > 0 {
				c.unclaim(pod)
			} else {
				c.delete(pod)
			}
		}
		scheduler.kill()
		c.checkBothWays(ways)
		c.list(nodes[round%2], gpus)
		c.list(nodes[(round+1)%2], 0)
	}
	t.Logf("devices that were held, by whether a claim had them: %v", ways)
	if ways[true] == 0 || ways[false] == 0 {
		t.Errorf("devices that were held, by whether a claim had them: %v", ways)
	}
}

// checkBothWays makes sure that no GPU is held by a pod and by a claim, and counts those that are
// held by either. Claims are read first: a device that is freed in between has one holder.
func (c *cluster) checkBothWays(ways map[bool]int) {
	c.Helper()
	holders := map[string]string{}
	claims, err := c.ResourceV1().ResourceClaims(metav1.NamespaceDefault).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			id := result.Pool + "-gpu-" + strings.TrimPrefix(result.Device, "dev-")
			if holders[id] != "" {
				c.Errorf("%s is allocated to %s and to claim %s", id, holders[id], claim.Name)
			}
			holders[id] = "claim " + claim.Name
			ways[true]++
		}
	}
	for _, pod := range c.pods() {
		if pod.Spec.NodeName == "" || len(pod.Spec.ResourceClaims) > 0 {
			continue
		}
		ids, err := gpusOf(&pod)
		if err != nil {
			c.Error(err)
		}
		for _, id := range ids {
			if holders[id] != "" && c.stillHeld(holders[id], id) {
				c.Errorf("%s is allocated to %s and to pod %s", id, holders[id], pod.Name)
			}
			holders[id] = "pod " + pod.Name
			ways[false]++
		}
	}
}

// stillHeld reports whether a claim, as checkBothWays names it, has a device.
func (c *cluster) stillHeld(holder, id string) bool {
	c.Helper()
	name, isClaim := strings.CutPrefix(holder, "claim ")
	if !isClaim {
		return true
	}
	claim, err := c.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			c.Fatal(err)
		}
		return false
	}
	return claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
		func(result resourcev1.DeviceRequestAllocationResult) bool {
			return result.Pool+"-gpu-"+strings.TrimPrefix(result.Device, "dev-") == id
		})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// claimDriver is the driver, and the class, of the devices that claims request. Nothing runs on the
// nodes: there are only its slices.
const claimDriver = "claims.example.com"

// chooses is the flag by which the scheduler chooses devices for claims.
const chooses = "--device-claims=kubedevice"

// devicesOfDriver publishes devices of a node with these PCIe roots, and their class.
func (c *cluster) devicesOfDriver(node string, roots ...string) {
	c.Helper()
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-" + claimDriver},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: claimDriver, NodeName: &node,
			Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	}
	for i, root := range roots {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprintf("dev-%d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"resource.kubernetes.io/pcieRoot": {StringValue: ptr.To(root)},
				"uuid":                            {StringValue: ptr.To(fmt.Sprintf("%s-%d", node, i))},
			},
		})
	}
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: claimDriver},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + claimDriver + `"`},
		}}},
	}
	api := c.ResourceV1()
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		c.clearPods()
		c.clearClaims(ctx)
		if err := api.ResourceSlices().Delete(ctx, slice.Name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
	if _, err := api.ResourceSlices().Create(c.Context(), slice, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	_, err := api.DeviceClasses().Create(c.Context(), class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
}

// renewSlice publishes the same devices of a node as another generation.
func (c *cluster) renewSlice(node string) {
	c.Helper()
	api := c.ResourceV1().ResourceSlices()
	slice, err := api.Get(c.Context(), node+"-"+claimDriver, metav1.GetOptions{})
	if err == nil {
		slice.Spec.Pool.Generation++
		_, err = api.Update(c.Context(), slice, metav1.UpdateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

// clearClaims deletes all claims. No controller takes their finalizers away.
func (c *cluster) clearClaims(ctx context.Context) {
	claims := c.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	list, err := claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		c.Error(err)
		return
	}
	for i := range list.Items {
		c.deallocate(ctx, list.Items[i].Name)
		if err := claims.Delete(ctx, list.Items[i].Name, atOnce); err != nil {
			c.Error(err)
		}
	}
}

// deallocate does what the resourceclaim controller does when the consumers of a claim have ended.
func (c *cluster) deallocate(ctx context.Context, name string) {
	claims := c.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		claim.Status = resourcev1.ResourceClaimStatus{}
		claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	}
	if err == nil {
		claim.Finalizers = nil
		_, err = claims.Update(ctx, claim, metav1.UpdateOptions{})
	}
	if err != nil {
		c.Error(err)
	}
}

// claimant creates a claim for so many devices, and returns a pod that uses it.
func (c *cluster) claimant(name string, count int64) *corev1.Pod {
	c.Helper()
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{
				Name: "devices", Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: claimDriver, Count: count,
					AllocationMode: resourcev1.DeviceAllocationModeExactCount,
				},
			}},
		}},
	}
	claims := c.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	if _, err := claims.Create(c.Context(), claim, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	pod := newPod(name, 0)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "devices"}}
	return pod
}

// claimed returns the devices that the claim of a bound pod has, and checks the rest of what
// upstream's code writes.
func (c *cluster) claimed(pod *corev1.Pod) string {
	c.Helper()
	claim, err := c.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(c.Context(), pod.Name,
		metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if claim.Status.Allocation == nil {
		c.Fatalf("pod %s is bound, and its claim is not allocated", pod.Name)
	}
	if len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].UID != pod.UID {
		c.Errorf("the claim is reserved for %v", claim.Status.ReservedFor)
	}
	if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		c.Errorf("the claim has the finalizers %v", claim.Finalizers)
	}
	selector := claim.Status.Allocation.NodeSelector
	if selector == nil || selector.NodeSelectorTerms[0].MatchFields[0].Values[0] != pod.Spec.NodeName {
		c.Errorf("the allocation is for the nodes %v", selector)
	}
	var names []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		names = append(names, result.Device)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Of four devices, the first and the third have one root, and the second and the fourth.
var crossed = []string{"pci0000:00", "pci0000:10", "pci0000:00", "pci0000:10"}

func TestUpstreamTakesTheFirstDevicesForClaims(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 0)
	c.devicesOfDriver("n1", crossed...)
	startScheduler(t)
	if got := c.claimed(c.schedule(c.claimant("pair", 2))); got != "dev-0 dev-1" {
		t.Errorf("the claim has %s", got)
	}
}

func TestDevicesForAClaimAreCloseAndPairsStayWhole(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 0)
	c.devicesOfDriver("n1", slices.Concat(crossed, crossed)...)
	port := freePort(t)
	p := startSchedulerWith(t, append(serving(port), chooses))
	for _, step := range []struct {
		name  string
		count int64
		want  string
	}{
		{"one", 1, "dev-0"},
		{"other", 1, "dev-2"},
		{"four", 4, "dev-1 dev-3 dev-5 dev-7"},
		{"pair", 2, "dev-4 dev-6"},
	} {
		if got := c.claimed(c.schedule(c.claimant(step.name, step.count))); got != step.want {
			t.Errorf("claim %s has %s, want %s", step.name, got, step.want)
		}
	}
	const reason = `have too few devices for request "devices" of claim "late" (1 of class "claims.example.com", ` +
		`best: 0 free of 8, held by claims four, one, other and 1 more)`
	c.awaitFailure(c.create(c.claimant("late", 1)), "1 "+reason)
	question, err := json.Marshal(schedulerapi.WhyRequest{
		Pod: schedulerapi.PodName{Namespace: metav1.NamespaceDefault, Name: "late"},
	})
	if err != nil {
		t.Fatal(err)
	}
	root := newReader(t, port, "root", "system:masters")
	response, err := root.client.Post(root.url+schedulerapi.WhyPath, "application/json", bytes.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var why schedulerapi.Why
	if err := json.NewDecoder(response.Body).Decode(&why); err != nil {
		t.Fatal(err)
	}
	if len(why.Reasons) != 1 || why.Reasons[0].Text != reason || !why.Reasons[0].EndingHelps {
		t.Errorf("why: %+v", why)
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"refused the devices", "to upstream's allocator"} {
		if strings.Contains(string(text), wrong) {
			t.Errorf("the scheduler's log has %q", wrong)
		}
	}
}

func TestAPodGetsDevicesByItsClaimAndByItsLimitsOnOneNode(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	c.node("n2", 0)
	c.node("n3", 2)
	c.devicesOfDriver("n2", "pci0000:00")
	c.devicesOfDriver("n3", crossed...)
	startSchedulerWith(t, []string{chooses})
	pod := c.claimant("both", 2)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceName(gpu.Resource): *resource.NewQuantity(2, resource.DecimalSI),
	}
	pod = c.schedule(pod)
	if got := c.claimed(pod); pod.Spec.NodeName != "n3" || got != "dev-0 dev-2" {
		t.Errorf("the pod is on %s, and its claim has %s", pod.Spec.NodeName, got)
	}
	if got, want := devices(pod), "n3-gpu-0 n3-gpu-1"; got != want {
		t.Errorf("the pod has %s, want %s", got, want)
	}
}

// Two of three holders have to go, and no more of them: also not while their claims wait for the
// resourceclaim controller, which the test does the work of.
func TestPreemptionFreesDevicesOfClaims(t *testing.T) {
	c := newCluster(t)
	high := c.priorityClass("high", 1000)
	c.node("n1", 0)
	c.devicesOfDriver("n1", crossed[:3]...)
	startSchedulerWith(t, []string{chooses})
	for i := range 3 {
		c.schedule(c.claimant(fmt.Sprintf("holder-%d", i), 1))
	}
	preemptor := c.claimant("preemptor", 2)
	preemptor.Spec.PriorityClassName = high
	preemptor = c.create(preemptor)
	c.until("two of the holders to be evicted", func(context.Context) (bool, error) { return len(c.pods()) == 2, nil })
	// It is tried again when its claims are deallocated, and when slices change.
	c.renewSlice("n1")
	c.awaitFailure(preemptor, "while claims of pods that have ended are deallocated")
	if n := len(c.pods()); n != 2 {
		t.Errorf("%d pods are left", n)
	}
	for i := range 3 {
		name := fmt.Sprintf("holder-%d", i)
		if _, err := c.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name,
			metav1.GetOptions{}); apierrors.IsNotFound(err) {
			c.deallocate(t.Context(), name)
		}
	}
	preemptor = c.await(preemptor, "to be bound", kube.Scheduled)
	if n := len(c.pods()); n != 2 {
		t.Errorf("%d pods are left", n)
	}
	if got := c.claimed(preemptor); len(strings.Fields(got)) != 2 {
		t.Errorf("the claim has %s", got)
	}
}

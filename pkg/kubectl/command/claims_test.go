// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// newSlice returns what a driver publishes of a node: as many devices with these attributes.
func newSlice(driver, node string, count int, attributes ...resourceapi.QualifiedName) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range count {
		device := resourceapi.Device{
			Name: fmt.Sprint("gpu-", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		}
		for _, name := range attributes {
			device.Attributes[name] = resourceapi.DeviceAttribute{StringValue: ptr.To(fmt.Sprint(i))}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return slice
}

// newClaim returns a claim that has these devices of a node, for these pods.
func newClaim(namespace, name, node string, devices []string, pods ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: apitypes.UID("uid-" + name),
	}}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod, UID: apitypes.UID("uid-" + pod),
		})
	}
	if len(devices) == 0 {
		return claim
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}}
	for _, device := range devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{
				Request: "gpus", Driver: "gpu.example.com", Pool: node, Device: device,
			})
	}
	return claim
}

// using makes a pod use a claim: one that it names, or one that was made from a template.
func using(pod *corev1.Pod, claim string, made bool) *corev1.Pod {
	if !made {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &claim}}
		return pod
	}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: ptr.To("template")}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpus", ResourceClaimName: &claim}}
	return pod
}

func TestTranscriptsOfClaims(t *testing.T) {
	bound := using(newPod("trainer"), "pair", false)
	bound.Spec.NodeName = "gpu-1"
	waiting := using(newPod("late"), "late", true)
	waiting.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: 2 have too few " +
			`devices for request "gpus" of claim "late" (4 of class "gpu", best: 2 free of 4, held by claim pair). ` +
			"preemption: none.",
	}}
	ended := using(newPod("ended"), "late", false)
	ended.Status.Phase = corev1.PodSucceeded
	admin := newClaim("ml", "watch", "gpu-1", []string{"gpu-0"}, "watcher")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	shared := newClaim("ml", "shared", "gpu-2", []string{"gpu-0"}, "one", "two")
	partitioned := newSlice("mig.example.com", "gpu-1", 2, "uuid", "resource.kubernetes.io/pcieRoot")
	partitioned.Spec.Devices[0].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "c"}}
	replaced := newSlice("gpu.example.com", "gpu-2", 3)
	replaced.Name, replaced.Spec.Pool.Generation = "old", 0
	objects := []runtime.Object{
		bound, waiting, ended, admin, shared, partitioned, replaced,
		newClaim("default", "pair", "gpu-1", []string{"gpu-2", "gpu-3"}, "trainer"),
		newClaim("default", "late", "", nil), newClaim("default", "left", "gpu-2", []string{"gpu-1"}),
		newSlice("gpu.example.com", "gpu-1", 4, "gpu.example.com/uuid", "resource.kubernetes.io/pcieRoot",
			"resource.kubernetes.io/numaNode"),
		newSlice("gpu.example.com", "gpu-2", 4, "uuid", "resource.kubernetes.io/pcieRoot"),
		newSlice("nic.example.com", "gpu-1", 2, "mac"),
	}
	testTranscript(t, "testdata/claims/claims.txt", func() *fixture { return newFixture(objects...) })
}

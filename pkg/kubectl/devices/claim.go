// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ClaimState says whether a ResourceClaim has devices.
type ClaimState string

// The states of claims.
const (
	// ClaimAllocated has devices, and pods that use it.
	ClaimAllocated ClaimState = "Allocated"
	// ClaimUnused has devices that no pod uses.
	ClaimUnused ClaimState = "Unused"
	// ClaimPending has no devices.
	ClaimPending ClaimState = "Pending"
)

// Claim is what a ResourceClaim has, or waits for.
type Claim struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string     `json:"namespace"`
	Name            string     `json:"name"`
	UID             string     `json:"uid"`
	State           ClaimState `json:"state"`
	// Node is the only node on which the claim can be used; empty for several, and for none.
	Node string `json:"node,omitempty"`
	// Pods are those that use the claim, or wait for it, in the order of their names.
	Pods []string `json:"pods"`
	// Message is why the first of the pods waits, in the scheduler's words.
	Message string `json:"message,omitempty"`
	// Devices are those that are allocated to it, in the order of its requests.
	Devices []ClaimedDevice `json:"devices"`
}

// ClaimedDevice is a device of a DRA driver that a claim has.
type ClaimedDevice struct {
	// Request is the name of the claim's request, with that of its alternative behind a slash.
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	// Admin says that the claim has administrative access: others may have the device, too.
	Admin bool `json:"admin,omitempty"`
}

// String returns the device's name.
func (d ClaimedDevice) String() string { return d.Driver + "/" + d.Pool + "/" + d.Device }

// ClaimList is several claims.
type ClaimList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*Claim `json:"items"`
}

// NewClaimList returns a list of claims, which may be nil.
func NewClaimList(claims []*Claim) *ClaimList {
	return &ClaimList{TypeMeta: TypeMeta("ClaimList"), Items: append([]*Claim{}, claims...)}
}

// NewClaim returns what a claim has. pods are those that name it.
func NewClaim(claim *resourceapi.ResourceClaim, pods []*corev1.Pod) *Claim {
	c := &Claim{
		TypeMeta: TypeMeta("Claim"), Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID),
		State: ClaimPending, Pods: []string{}, Devices: []ClaimedDevice{},
	}
	for _, consumer := range claim.Status.ReservedFor {
		name := consumer.Name
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			name = consumer.Resource + "/" + name
		}
		c.Pods = append(c.Pods, name)
	}
	if allocation := claim.Status.Allocation; allocation != nil {
		c.State, c.Node = ClaimAllocated, onlyNode(allocation.NodeSelector)
		if len(c.Pods) == 0 {
			c.State = ClaimUnused
		}
		for i := range allocation.Devices.Results {
			result := &allocation.Devices.Results[i]
			c.Devices = append(c.Devices, ClaimedDevice{
				Request: result.Request, Driver: result.Driver, Pool: result.Pool, Device: result.Device,
				Admin: ptr.Deref(result.AdminAccess, false),
			})
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		if finished(pod) {
			continue
		}
		if !slices.Contains(c.Pods, pod.Name) {
			c.Pods = append(c.Pods, pod.Name)
		}
		if pod.Spec.NodeName == "" && c.Message == "" {
			c.Message = whyWaiting(condition(pod, corev1.PodScheduled))
		}
	}
	slices.Sort(c.Pods)
	return c
}

// Reason is [Claim.Message] in short, as that of a pod.
func (c *Claim) Reason() string { return (&Pod{State: Waiting, Message: c.Message}).Reason() }

// onlyNode returns the node that a selector names, "" for any other selector.
func onlyNode(selector *corev1.NodeSelector) string {
	if selector == nil || len(selector.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, field := range selector.NodeSelectorTerms[0].MatchFields {
		if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
			return field.Values[0]
		}
	}
	return ""
}

// ClaimsOf returns the names of the claims that a pod uses, as far as they are known.
func ClaimsOf(pod *corev1.Pod) []string {
	var names []string
	for _, used := range pod.Spec.ResourceClaims {
		if used.ResourceClaimName != nil {
			names = append(names, *used.ResourceClaimName)
		}
	}
	for _, made := range pod.Status.ResourceClaimStatuses {
		if made.ResourceClaimName != nil && !slices.Contains(names, *made.ResourceClaimName) {
			names = append(names, *made.ResourceClaimName)
		}
	}
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil {
		names = append(names, made.ResourceClaimName)
	}
	return names
}

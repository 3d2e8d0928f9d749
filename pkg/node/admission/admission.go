// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission decides, for each container that the kubelet creates, whether it passes
// untouched, gets devices, or is refused. It does not know from where it hears of the container: a
// frontend makes a Container of it, and applies to it what Admit returns. Admit takes three steps
// over one request value:
//
//   - verify finds out whether the pod is a device pod, and checks the allocation that it claims;
//     guard refuses a container that requests devices without the scheduler;
//   - grant makes the allocation the pod's own, for good;
//   - inject calls the device plugins and adds what they say to the container.
//
// It fails closed for device pods and lets all others pass. A pod is a device pod if its annotation
// KubeDevice/DeviceInfo requests devices, or if one of its containers requests a device resource of
// the node. As long as nobody knows all of those, a pod that requests another extended resource is
// refused for the time being.
//
// A device pod needs an allocation that the device scheduler made for this node, of devices that
// exist, are healthy, and are held by no other pod. Static pods, and all others that do not come
// from the API server, cannot have been scheduled: they pass untouched and never get a device.
//
// A container of an adopted pod, see package grants, passes with the devices that the kubelet gives
// it, and is guarded from others like any container. If the kubelet has forgotten them, it gets
// them here.
package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/images"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Pods knows the pods of this node. *pods.Registry does.
type Pods interface {
	// Lookup returns what is known of the pod. It may wait for a while; its error wraps
	// pods.ErrUnknown for a pod that stays unknown.
	Lookup(ctx context.Context, uid string) (pods.Pod, error)
	// Get is Lookup without waiting.
	Get(uid string) (pod pods.Pod, known bool)
	// DeviceResources returns the names of the node's device resources, and whether there can be no
	// others. The map is read only.
	DeviceResources() (names map[types.ResourceName]bool, all bool)
}

// Devices are the devices of this node. *plugins.Manager is one.
type Devices interface {
	// Synced returns a channel that is closed when every plugin has reported its devices once, or
	// failed to.
	Synced() <-chan struct{}
	// Inventory returns what there is.
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
	// Await waits, not for long, until those plugins of the devices are there that may come late.
	Await(ctx context.Context, from types.ResourceLocation)
	// Allocate returns what the container needs for its devices.
	Allocate(ctx context.Context, claim plugins.Claim) ([]inject.Addition, error)
}

// Grants are the allocations that were granted to pods. *grants.Checkpoint has them.
type Grants interface {
	// Has reports at once whether the pod has one, as far as that is known.
	Has(podUID string) bool
	// Granted returns it.
	Granted(ctx context.Context, podUID string) (allocation grants.Allocation, granted bool, err error)
	// Recorded is Granted by the file alone, at once. Its error says that the file was lost.
	Recorded(podUID string) (allocation grants.Allocation, granted bool, err error)
	// Grant grants the pod the wanted one, or returns the one that it has. Its error is a
	// *grants.Conflict if other pods hold the devices.
	Grant(ctx context.Context, wanted grants.Allocation, capacity grants.Capacity) (grants.Allocation, error)
	// Replace gives containers of a pod other devices. Its error is a *grants.Conflict if others
	// hold them.
	Replace(replacement grants.Replacement, capacity grants.Capacity) (grants.Allocation, error)
	// EncodePart returns what a container with devices carries in the runtime as grants.Annotation.
	EncodePart(granted grants.Allocation, container string) (string, error)
	// Confirms reports whether a container got the value of grants.Annotation from kubecri on this
	// node. An error says that this is not known now.
	Confirms(podUID, namespace, name, container, value string) (bool, error)
}

// Responses caches what device plugins answered to Allocate. *grants.ResponseCache does.
type Responses interface {
	// Drop drops the responses for the container, and reports whether there were any.
	Drop(podUID, container string) (dropped bool, err error)
}

// Adopted has the devices that the kubelet allocated, of resources that have moved here.
// *adoption.Adopter implements it.
type Adopted interface {
	// AllocatedTo returns those of a container, sorted by name.
	AllocatedTo(podUID, container string) ([]types.ResourceName, error)
}

// Kubelet has what plugins and drivers that are registered with the kubelet itself allocated.
// kubeletstate.Files implements it.
type Kubelet interface {
	// Injections returns what plugins allocated to a container.
	Injections(podUID, container string) ([]firewall.KubeletInjection, error)
	// Claims returns the drivers that prepared CDI devices for a pod's claims, by the device.
	Claims(podUID string) (map[string]string, error)
}

// Sandboxes is the state of a container runtime that the firewall needs.
type Sandboxes interface {
	// Annotations returns those that a sandbox was created with and that the firewall reads. When a
	// container is created, CRI-O reads them, and containerd gives them to NRI plugins.
	Annotations(ctx context.Context, sandboxID string) (map[string]string, error)
}

// DeviceChecker checks that containers get what vendors' container runtimes have to add to them.
// *devicecheck.Checker does.
type DeviceChecker interface {
	// Expect is called before a container of the pod is created. It does not block.
	Expect(pod *corev1.ObjectReference, container string, expected []firewall.Expected)
}

// ShareLimits limit what containers with shares of devices use, by what is in them.
// *sharelibrary.Library implements it.
type ShareLimits interface {
	// Limit returns what a container gets for that. limited is false for one without shares. An
	// error says why one with shares must not be created.
	Limit(claim plugins.Claim) (addition inject.Addition, limited bool, err error)
}

// Outcome is how the creation of a container ended here.
type Outcome string

// The outcomes.
const (
	Passed   Outcome = "passed"   // untouched
	Injected Outcome = "injected" // with devices
	Isolated Outcome = "isolated" // without devices, and with what keeps it from them
	Refused  Outcome = "refused"
)

// FirewallAction is what the firewall did about an attempt.
type FirewallAction string

// The actions.
const (
	AttemptNeutralised FirewallAction = "neutralised"
	AttemptRefused     FirewallAction = "refused"
	AttemptAllowed     FirewallAction = "allowed" // by the list of pods that are let through
)

// Seals has the node's seal mode and the keys of the scheduler. *seals.Agreement implements it.
type Seals interface {
	// Mode returns the current mode; "" is seal.Off.
	Mode() seal.Mode
	// Verifier returns the keys. Its error says why no key is known.
	Verifier() (*seal.Verifier, error)
	// Observe is notified of the result of each verification: SealValid, SealNoKeys, or a
	// seal.Reason.
	Observe(result string)
}

// CDI knows whether the container runtime supports CDI devices. *cdi.Support implements it.
type CDI interface {
	// Check returns nil if the runtime honours CDI devices, and the reason otherwise. The error
	// wraps cdi.ErrUnknown while this is not known.
	Check() error
}

// Holders has the pods that hold devices which the kubelet does not know. *adoption.Files
// implements it.
type Holders interface {
	// Holder returns a pod, as namespace/name, other than that of this UID, which holds a device of
	// an extended resource by a plugin file; empty if there is none.
	Holder(resource types.ResourceName, otherThan string) string
	// HostedHolder returns one that holds it by a plugin which registered with kubecri.
	HostedHolder(resource types.ResourceName, otherThan string) string
}

// Rivals are plugins that serve resources at the kubelet which kubecri has taken over from it.
// *devicemanager.Manager implements it.
type Rivals interface {
	// Yield leaves a resource to such a plugin, which gave a container of that pod a device. A call
	// for any other resource, and a second one for the pod, has no effect.
	Yield(ctx context.Context, resource types.ResourceName, podUID string)
}

// Images are the images of the container runtime. *images.Cache implements it.
type Images interface {
	// Image returns what an image sets in its containers.
	Image(ctx context.Context, image *runtimeapi.ImageSpec) (images.Image, error)
}

// Variables makes CDI devices. *cdi.Variables implements it.
type Variables interface {
	// Device returns the name of a CDI device that sets variables, each as name=value, after
	// everything else has. Its error says why there is none.
	Device(variables []string) (cdiDevice string, err error)
}

// Events writes warning events on pods for their owners to see. Its methods must not block.
type Events interface {
	// WarnRefused reports that a container of the pod is refused.
	WarnRefused(pod *corev1.ObjectReference, message string)
	// WarnIgnored reports that a container is created, and a request of it without the scheduler is
	// not obeyed.
	WarnIgnored(pod *corev1.ObjectReference, message string)
	// WarnMistake reports that a container is created, and a request of its pod has no effect, as
	// it is misspelled.
	WarnMistake(pod *corev1.ObjectReference, message string)
	// WarnLeftOut reports that a container is created without a part of what device plugins
	// answered.
	WarnLeftOut(pod *corev1.ObjectReference, message string)
	// WarnNotSealed reports that seal.Enforce would refuse the pod.
	WarnNotSealed(pod *corev1.ObjectReference, message string)
}

// Metrics counts decisions.
type Metrics interface {
	// ObserveContainer counts a container.
	ObserveContainer(outcome Outcome)
	// ObserveFirewall counts a request without the scheduler.
	ObserveFirewall(attempt firewall.Attempt, action FirewallAction)
	// ObserveSeal counts the verification of a seal, by its result; see Seals.
	ObserveSeal(result string)
}

// Admission is set up once; its methods are then safe for concurrent use.
type Admission struct {
	NodeName  string
	Pods      Pods
	Devices   Devices
	Grants    Grants
	Responses Responses
	HostFS    inject.HostFS
	CDI       CDI
	// Seals has the seal mode and the keys; nil for seal.Off.
	Seals Seals
	// Adopted has the devices of adopted pods.
	Adopted Adopted
	// Firewall keeps containers from devices that they were not allocated; nil for none.
	Firewall *firewall.Firewall
	// Allowlist are the pods that the firewall lets through.
	Allowlist firewall.Allowlist
	// Kubelet has what the firewall needs to know of the kubelet.
	Kubelet Kubelet
	// Holders has the pods that hold devices which the kubelet does not know; nil for none.
	Holders Holders
	// Rivals are those of hosted plugins.
	Rivals Rivals
	// Images are the images of the container runtime.
	Images Images
	// Sandboxes has what the firewall needs to know of sandboxes.
	Sandboxes Sandboxes
	// Variables makes the CDI devices that set variables.
	Variables Variables
	Events    Events
	Metrics   Metrics
	// Runtimes are the container runtimes of vendors.
	Runtimes firewall.Runtimes
	// DeviceChecker is notified of what these have to add to containers; nil for none.
	DeviceChecker DeviceChecker
	// ShareLimits limit containers with shares; nil for none.
	ShareLimits ShareLimits
	// Refusals remembers the pods that were refused; nil for none.
	Refusals *Refusals
	// Waiting is notified of pods whose devices cannot be used; nil for none.
	Waiting *Waiting
}

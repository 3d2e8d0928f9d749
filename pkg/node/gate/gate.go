// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gate decides, for each container that the kubelet creates, whether it passes untouched, gets devices, or is
// refused.
//
// It fails closed for pods that ask for devices and lets all others pass. A pod asks for devices if its annotation
// KubeDevice/DeviceInfo does, or if one of its containers requests an extended resource that a device plugin of this node
// stands behind: now, or when it was last well, as this node's state folder and its object in the API server remember. On a
// node where no plugin ever was well, and whose object was not seen yet, nobody can tell those resources from others: a pod
// that requests any extended resource is then asked to come again.
//
// A pod that asks for devices needs an allocation that the device scheduler made for this node, of devices that are here and
// well, and that no other pod holds. Static pods, and whatever else does not come from the API server, cannot have been
// scheduled: they pass untouched and never get a device.
package gate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The methods that a Gate edits, by full name.
const (
	CreateContainerMethod = "/runtime.v1.RuntimeService/CreateContainer"
	RestorePodMethod      = "/runtime.v1.RuntimeService/RestorePod"
)

// Pods knows the pods of this node. *pods.Registry is one.
type Pods interface {
	// Lookup returns what is known of the pod. It may wait for a while; its error wraps pods.ErrUnknown for a pod that stays
	// unknown.
	Lookup(ctx context.Context, uid string) (pods.Pod, error)
	// Get is Lookup without waiting.
	Get(uid string) (pod pods.Pod, known bool)
	// DeviceResources returns the names of the extended resources that device plugins stood behind when they were last well,
	// and whether there can be no others that nobody has told yet. The map is the caller's own.
	DeviceResources() (names map[string]bool, told bool)
}

// Devices are the devices of this node. *plugins.Manager is one.
type Devices interface {
	// Synced returns a channel that is closed when every plugin has reported its devices once, or failed to.
	Synced() <-chan struct{}
	// Inventory returns what there is.
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
	// Await waits, not for long, until those plugins of the devices are there that may come late.
	Await(ctx context.Context, from types.ResourceLocation)
	// Allocate returns what the container needs for its devices.
	Allocate(ctx context.Context, claim plugins.Claim) ([]inject.Addition, error)
	// DenyEnvs returns the environment variables that keep a container from using devices that it does not hold. It may wait.
	DenyEnvs(ctx context.Context, holds types.ResourceLocation) (map[string]string, error)
}

// Grants is the record of who holds what. *grants.Checkpoint is one.
type Grants interface {
	Has(podUID string) bool
	Granted(ctx context.Context, podUID string) (allocation grants.Allocation, granted bool, err error)
	Grant(ctx context.Context, wanted grants.Allocation, capacity grants.Capacity) (grants.Allocation, error)
}

// Responses caches what device plugins answered to Allocate. *grants.ResponseCache does.
type Responses interface {
	// Drop drops the responses for the container, and reports whether there were any.
	Drop(podUID, container string) (dropped bool, err error)
}

// Outcome is how a container's creation ended here.
type Outcome string

// The outcomes.
const (
	Passed   Outcome = "passed"   // untouched
	Injected Outcome = "injected" // with devices
	Isolated Outcome = "isolated" // without devices, and with what keeps it from them
	Refused  Outcome = "refused"
)

// Gate is set up once and then used from many goroutines.
type Gate struct {
	NodeName  string
	Pods      Pods
	Devices   Devices
	Grants    Grants
	Responses Responses
	Host      inject.Host
	// CDI returns nil if the runtime honours CDI devices, and otherwise why not; see package cdi.
	CDI func() error
	// Isolate says to keep containers from devices that they do not hold.
	Isolate bool
	// Tell puts a warning on the pod for its owner to see. It must not block.
	Tell func(pod *corev1.ObjectReference, message string)
	// Observe, if set, is told of each container.
	Observe func(Outcome)
}

// CreateContainer is the criproxy.Edit of CreateContainerMethod.
func (g *Gate) CreateContainer(ctx context.Context, raw []byte) (suffix []byte, err error) {
	outcome := Passed
	defer func() {
		if err != nil {
			outcome = Refused
		}
		if g.Observe != nil {
			g.Observe(outcome)
		}
	}()
	request, err := inject.Decode(raw)
	if err != nil {
		return nil, invalid(err)
	}
	failpoint.Reach(failpoint.Decoded)
	s := subjectOf(request.GetSandboxConfig())
	decision, err := g.decide(ctx, s)
	if err != nil {
		return nil, g.refuse(ctx, s, err)
	}
	delta, change, err := g.change(ctx, s, decision, request.GetConfig())
	if err != nil {
		return nil, g.refuse(ctx, s, err)
	}
	if delta == nil {
		return nil, nil
	}
	suffix, err = inject.Suffix(delta)
	if err != nil {
		return nil, g.refuse(ctx, s, err)
	}
	outcome = change
	klog.FromContext(ctx).V(2).Info("A container is changed", "outcome", outcome, "pod", klog.KRef(s.namespace, s.name),
		"container", request.GetConfig().GetMetadata().GetName(), "devices", len(delta.GetDevices()))
	return suffix, nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Health says whether pods may get a device.
type Health string

// The healths of a device.
const (
	Healthy Health = "Healthy"
	// Unhealthy: the node has the device, and none of its resources are allocatable.
	Unhealthy Health = "Unhealthy"
	// Gone: a pod holds the device, and its node does not list it.
	Gone Health = "Gone"
)

// Use says how much of a device is in use.
type Use string

// The uses of a device.
const (
	// Free: nothing of it is in use.
	Free Use = "Free"
	// Shared: parts of it are in use.
	Shared Use = "Shared"
	// Whole: one pod, or somebody outside of Kubernetes, has all there is of one of its resources,
	// and so the device alone.
	Whole Use = "Whole"
)

// Device is one device, or one group of devices that has resources of its own.
type Device struct {
	// Path is its path of levels and instances, without prefix: gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a.
	// It is empty for the resources of the node itself.
	Path string `json:"path"`
	// Kind is its innermost level, such as gpu, or the extended resource of a kubelet device
	// plugin, such as intel.com/qat. It is "node" for the node itself.
	Kind string `json:"kind"`
	// ID is the name that its plugin gives it.
	ID string `json:"id"`
	// Model is its attribute productName, or else what the node's label <extended resource>.product
	// says of devices of this kind.
	Model string `json:"model,omitempty"`
	// Attributes are what its plugin says of it, by name: strings, whole numbers, booleans, and
	// versions as {"version":"9.0.0"}. What is not known is absent.
	Attributes device.Attributes `json:"attributes,omitempty"`
	Health     Health            `json:"health"`
	// Reason is why it is unhealthy, a CamelCase word; Message says the rest; UnhealthySince is
	// since when. They are empty for other devices, and where the node does not say.
	Reason         string       `json:"reason,omitempty"`
	Message        string       `json:"message,omitempty"`
	UnhealthySince *metav1.Time `json:"unhealthySince,omitempty"`
	// Taints are those that the device has, and what it is part of. Only pods that tolerate all of
	// them get it.
	Taints []Taint `json:"taints,omitempty"`
	Use    Use     `json:"use"`
	// Measured is how much of its memory programs really use, by the node's last reading. It is nil
	// where that is not known.
	Measured *Measured `json:"measured,omitempty"`
	// Resources are what it has, by name.
	Resources []Resource `json:"resources"`
	// Holders are the containers that hold some of it, by namespace, pod and container.
	Holders []Holder `json:"holders,omitempty"`
}

// Measured is how much of the memory of a device, or of several, is really used, in bytes.
type Measured struct {
	// Time is when the node has read it. It is absent for several devices.
	Time        metav1.Time `json:"time,omitzero"`
	MemoryTotal int64       `json:"memoryTotal"`
	MemoryUsed  int64       `json:"memoryUsed"`
	// MemoryUnowned is the part of MemoryUsed that processes of no known container use.
	MemoryUnowned device.Reading `json:"memoryUnowned,omitzero"`
}

// Taint is a taint of a device, with the words of a node's taints.
type Taint struct {
	Key    string             `json:"key"`
	Value  string             `json:"value,omitempty"`
	Effect corev1.TaintEffect `json:"effect"`
	// TimeAdded is when it was added, if that is known.
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// String returns the taint as kubectl writes it: KEY=VALUE:EFFECT.
func (t Taint) String() string {
	return (&corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}).ToString()
}

// Cordoned reports whether the device is cordoned.
func (d *Device) Cordoned() bool {
	return slices.ContainsFunc(d.Taints, func(t Taint) bool {
		return deviceinfo.DeviceTaint{Key: t.Key, Effect: t.Effect}.Cordons()
	})
}

// Resource is one resource of a device. Quantities are in base units: devices, bytes, or a bit mask
// where the name begins with enum.
type Resource struct {
	Name string `json:"name"`
	// Capacity is all there is, and Allocatable what pods may have of it.
	Capacity    int64 `json:"capacity"`
	Allocatable int64 `json:"allocatable"`
	// Used is what no other pod gets, as the scheduler counts it: what pods hold, what is used
	// outside of Kubernetes, and all there is of a device that is Whole. Of a mask it is 0.
	Used int64 `json:"used"`
	// Outside is the part of Used that is used outside of Kubernetes.
	Outside int64 `json:"usedOutside,omitempty"`
}

// total returns all that pods may have of it, or, of a device that is unhealthy, might have had.
func (r Resource) total() int64 { return cmp.Or(r.Allocatable, r.Capacity) }

// Mask reports whether the resource is a bit mask.
func (r Resource) Mask() bool { return resource.IsEnumResource(types.ResourceName(r.Name)) }

// Holder is a container that holds some of a device.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Container string `json:"container"`
	State     State  `json:"state"`
	// Enforcement is what holds the container to what it has: hardware, policed or counted.
	Enforcement deviceinfo.Enforcement `json:"enforcement"`
	// MemoryUsed is how many bytes of the device's memory the container really uses, by the same
	// reading as the device's Measured.
	MemoryUsed device.Reading `json:"memoryUsed,omitzero"`
	// Resources is what the container has of the device, in base units. An init container and a
	// container that runs after it may have the same.
	Resources map[string]int64 `json:"resources"`
}

// usedPart returns how much of the device is in use, from 0 to 1: the largest part of any resource.
func (d *Device) usedPart() float64 {
	part := 0.0
	for _, r := range d.Resources {
		if !r.Mask() && r.Used > 0 {
			part = max(part, float64(r.Used)/float64(max(r.total(), r.Used)))
		}
	}
	return part
}

// Percent returns how much of the device is in use, in percent: the largest part of any resource,
// 1 if it is less and not nothing.
func (d *Device) Percent() int { return percent(d.usedPart()) }

func percent(part float64) int {
	if part > 0 {
		return max(1, int(part*100))
	}
	return 0
}

// Quantity returns a resource of the device, and whether it has it.
func (d *Device) Quantity(name string) (Resource, bool) {
	i := slices.IndexFunc(d.Resources, func(r Resource) bool { return r.Name == name })
	if i < 0 {
		return Resource{}, false
	}
	return d.Resources[i], true
}

// newDevice returns the device that has a resource, without its resources.
func newDevice(path resource.Path) *Device {
	d := &Device{Path: path.Device()}
	d.Kind, d.ID = identity(path)
	return d
}

// identity returns kind and ID of the device that has a resource.
func identity(path resource.Path) (kind, id string) {
	if hosted, ok := kubeletdevice.Parse(path.Name()); ok {
		return string(hosted.Resource), hosted.ID
	}
	return cmp.Or(path.DeviceLevel(), "node"), path.DeviceID()
}

// modelsOf returns what the labels of a node say of its devices, by kind: the value of the label
// <extended resource>.product, as NVIDIA's GPU feature discovery writes it, where the extended
// resource is the kind or ends with it. plain are the extended resources that the node's inventory
// counts, sorted; the first with such a label counts.
func modelsOf(node *corev1.Node, plain []string) map[string]string {
	models := map[string]string{}
	for _, name := range plain {
		model := node.Labels[name+".product"]
		for kind, more := name, model != ""; more; _, kind, more = strings.Cut(kind, "/") {
			if models[kind] == "" {
				models[kind] = model
			}
		}
	}
	return models
}

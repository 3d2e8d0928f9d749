// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"iter"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// DeviceTaintsAnnotation is the key of the annotation in which administrators taint devices of a
// node. No program of the node writes it.
const DeviceTaintsAnnotation = "KubeDevice/DeviceTaints"

// CordonKey is the key of the taint, with the effect NoSchedule, that a cordoned device has.
const CordonKey = "kubedevice.io/unschedulable"

// UnreadableKey is the key of the taint, with the effect NoSchedule, that the scheduler assumes on
// all devices of a node with an invalid annotation.
const UnreadableKey = "kubedevice.io/unreadable-taints"

const (
	// MaxDeviceTaintsBytes is the largest value of [DeviceTaintsAnnotation].
	MaxDeviceTaintsBytes = 64 << 10
	// MaxDeviceTaints is how many taints the devices of one node have at most, all together.
	MaxDeviceTaints = 512
	// MaxDistinctTaints is how many of them differ in more than the device: the scheduler numbers
	// them by the bits of a word.
	MaxDistinctTaints = 64
)

// taintsVersion is the version of the annotation's form. A reader rejects unknown content: a list
// that repels pods must be complete.
const taintsVersion = 1

// DeviceTaint is a taint of a device, with the fields of node taints. A device has at most one
// taint of a key and effect.
type DeviceTaint struct {
	// Device is the device's innermost level with its ID: gpu/GPU-7f3a. The taint is independent of
	// the device's groups. Instances below a device, such as a part of it, have the device's
	// taints.
	Device string             `json:"device"`
	Key    string             `json:"key"`
	Value  string             `json:"value,omitempty"`
	Effect corev1.TaintEffect `json:"effect"`
	// TimeAdded is when the device was tainted, in UTC and whole seconds, or zero. A toleration's
	// seconds count from then.
	TimeAdded time.Time `json:"timeAdded,omitzero"`
}

// Taint returns the taint without its device and time.
func (t DeviceTaint) Taint() corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// Cordons reports whether the taint marks a cordoned device.
func (t DeviceTaint) Cordons() bool {
	return t.Key == CordonKey && t.Effect == corev1.TaintEffectNoSchedule
}

// DevicesOf yields the groups and devices that contain the device of a resource, and the device
// itself, outermost first, each as [DeviceTaint.Device] names it.
func DevicesOf(path resource.Path) iter.Seq[string] {
	return func(yield func(device string) bool) {
		rest := path.String()
		for range path.Depth() {
			level := strings.IndexByte(rest, '/') + 1
			end := level + strings.IndexByte(rest[level:], '/')
			if !yield(rest[:end]) {
				return
			}
			rest = rest[end+1:]
		}
	}
}

// TaintsOf returns the taints that apply to the device with this path, without its prefix.
func TaintsOf(taints []DeviceTaint, device string) (found []DeviceTaint) {
	if len(taints) == 0 {
		return nil
	}
	path, err := resource.ParseRequest(sdk.ResourceName(device + "/any"))
	if err != nil {
		return nil
	}
	for owner := range DevicesOf(path) {
		for _, taint := range taints {
			if taint.Device == owner {
				found = append(found, taint)
			}
		}
	}
	return found
}

// TaintedDevice returns the [DeviceTaint.Device] for a device's path, without its prefix.
func TaintedDevice(path string) string {
	segments := strings.Split(path, "/")
	return strings.Join(segments[max(0, len(segments)-2):], "/")
}

// Toleration returns the first toleration that tolerates the taint, or nil. Tolerations match as
// for node taints.
func Toleration(tolerations []corev1.Toleration, taint corev1.Taint) *corev1.Toleration {
	for i := range tolerations {
		// The API server has decided whether the cluster has comparison operators.
		if tolerations[i].ToleratesTaint(klog.Background(), &taint, true) {
			return &tolerations[i]
		}
	}
	return nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// patch returns the JSON merge patch that sets these annotations of the node, or removes those that
// are empty, and its counts. It returns nil if the node has them. The patch removes extended
// resources that only the node's present annotation lists, and those that count parts of their
// devices. It leaves alone those that the kubelet counts.
func patch(
	node *corev1.Node, wanted map[string]string, counts map[corev1.ResourceName]int64,
	kubelet Kubelet,
) ([]byte, error) {
	kubeletCounts := func(extended string) bool {
		return kubelet != nil && kubelet.KubeletCounts(types.ResourceName(extended))
	}
	annotations := map[string]any{}
	for key, value := range wanted {
		before, annotated := node.Annotations[key]
		switch {
		case value == "" && annotated:
			annotations[key] = nil
		case value != "" && value != before:
			annotations[key] = value
		}
	}
	capacity, allocatable := map[corev1.ResourceName]any{}, map[corev1.ResourceName]any{}
	ours := slices.DeleteFunc(publishedNames(node), kubeletCounts)
	for _, extended := range append(ours, partNames(ours)...) {
		name := corev1.ResourceName(extended)
		if _, still := counts[name]; !still {
			removeFrom(capacity, node.Status.Capacity, name)
			removeFrom(allocatable, node.Status.Allocatable, name)
		}
	}
	for name, count := range counts {
		if kubeletCounts(string(name)) {
			continue
		}
		setIn(capacity, node.Status.Capacity, name, count)
		setIn(allocatable, node.Status.Allocatable, name, count)
	}
	if len(annotations)+len(capacity)+len(allocatable) == 0 {
		return nil, nil
	}
	status := map[string]any{}
	if len(capacity) > 0 {
		status["capacity"] = capacity
	}
	if len(allocatable) > 0 {
		status["allocatable"] = allocatable
	}
	body := map[string]any{}
	if len(annotations) > 0 {
		body["metadata"] = map[string]any{"annotations": annotations}
	}
	if len(status) > 0 {
		body["status"] = status
	}
	return json.Marshal(body)
}

func removeFrom(change map[corev1.ResourceName]any, list corev1.ResourceList, name corev1.ResourceName) {
	if _, there := list[name]; there {
		change[name] = nil
	}
}

func setIn(change map[corev1.ResourceName]any, list corev1.ResourceList, name corev1.ResourceName, count int64) {
	quantity := resource.NewQuantity(count, resource.DecimalSI)
	if there, ok := list[name]; !ok || there.Cmp(*quantity) != 0 {
		change[name] = quantity
	}
}

// holdersReport is what the annotation KubeDevice/Holders has to say.
type holdersReport struct{ holders []deviceinfo.Holder }

// addTo adds the report, if there is one, to the annotations that are published. After an error,
// the node keeps what it has.
func (h *holdersReport) addTo(annotations map[string]string, node *corev1.Node) error {
	if h == nil {
		return nil
	}
	value, err := deviceinfo.EncodeHolders(h.holders)
	if err == nil {
		all := maps.Clone(annotations)
		all[deviceinfo.HoldersAnnotation] = value
		if total := sizeWith(node, all); total > deviceinfo.MaxBytes {
			err = fmt.Errorf("all of the node's annotations would have %d of %d bytes that Kubernetes allows", total,
				deviceinfo.MaxBytes)
		}
	}
	if err != nil {
		return fmt.Errorf("report the %d pods that hold devices of node %q without a valid seal, or by the kubelet: "+
			"%w; delete some of them, so that they are scheduled again", len(h.holders), node.Name, err)
	}
	annotations[deviceinfo.HoldersAnnotation] = value
	return nil
}

// healthReport is what the annotation KubeDevice/Unhealthy has to say.
type healthReport struct{ devices []deviceinfo.UnhealthyDevice }

// addTo adds as much of the report, if there is one, as the other annotations leave room for.
func (h *healthReport) addTo(annotations map[string]string, node *corev1.Node) {
	if h == nil {
		return
	}
	annotations[deviceinfo.UnhealthyAnnotation] = ""
	annotations[deviceinfo.UnhealthyAnnotation] = deviceinfo.EncodeUnhealthy(h.devices,
		deviceinfo.MaxBytes-sizeWith(node, annotations))
}

// replacementsReport is what the annotation KubeDevice/Replacements has to say.
type replacementsReport struct{ pods []deviceinfo.Replacement }

// addTo adds as much of the report, if there is one, as the other annotations leave room for.
func (r *replacementsReport) addTo(annotations map[string]string, node *corev1.Node) {
	if r == nil {
		return
	}
	annotations[deviceinfo.ReplacementsAnnotation] = ""
	annotations[deviceinfo.ReplacementsAnnotation] = deviceinfo.EncodeReplacements(r.pods,
		deviceinfo.MaxBytes-sizeWith(node, annotations))
}

// attributesReport is what the annotation KubeDevice/Attributes has to say.
type attributesReport struct{ devices map[string]device.Attributes }

// addTo adds as much of the report about devices in info as the other annotations leave room for,
// and returns the paths of the devices that are left out. Only usage is added later.
func (r *attributesReport) addTo(
	annotations map[string]string, node *corev1.Node, info *types.NodeInfo,
) (left []string) {
	devices := map[string]device.Attributes{}
	for name := range info.Capacity {
		if devicePath := path.Dir(string(name)); len(r.devices[devicePath]) > 0 {
			devices[deviceinfo.DevicePath(devicePath)] = r.devices[devicePath]
		}
	}
	annotations[deviceinfo.AttributesAnnotation] = ""
	annotations[deviceinfo.AttributesAnnotation], left = deviceinfo.EncodeAttributes(devices,
		deviceinfo.MaxBytes-sizeWith(node, annotations))
	return left
}

// enforcementReport is what the annotation KubeDevice/ShareEnforcement has to say.
type enforcementReport struct{ now deviceinfo.ShareEnforcement }

// addTo adds as much of the report, if there is one, about devices in info as the other annotations
// leave room for.
func (r *enforcementReport) addTo(annotations map[string]string, node *corev1.Node, info *types.NodeInfo) {
	if r == nil {
		return
	}
	devicePath := deviceinfo.ShareEnforcement{
		OnShareExceeded: r.now.OnShareExceeded, Devices: map[string][]deviceinfo.Enforcement{},
	}
	for name := range info.Capacity {
		device := deviceinfo.TaintedDevice(path.Dir(string(name)))
		if can := r.now.Devices[device]; len(can) > 0 {
			devicePath.Devices[device] = can
		}
	}
	annotations[deviceinfo.ShareEnforcementAnnotation] = ""
	annotations[deviceinfo.ShareEnforcementAnnotation] = deviceinfo.EncodeShareEnforcement(devicePath,
		deviceinfo.MaxBytes-sizeWith(node, annotations))
}

// usageReport is what the annotation KubeDevice/Usage has to say; nothing for nil.
type usageReport struct{ usage *deviceinfo.Usage }

// addTo adds as much of the report, if there is one, about devices in info as the other annotations
// leave room for. It is the last to be added.
func (r *usageReport) addTo(annotations map[string]string, node *corev1.Node, info *types.NodeInfo) {
	if r == nil {
		return
	}
	annotations[deviceinfo.UsageAnnotation] = ""
	if r.usage == nil || r.usage.Time.IsZero() {
		return
	}
	usage := deviceinfo.Usage{Time: r.usage.Time, Devices: map[string]deviceinfo.DeviceUsage{}}
	for name := range info.Capacity {
		devicePath := deviceinfo.DevicePath(path.Dir(string(name)))
		if read, known := r.usage.Devices[devicePath]; known {
			usage.Devices[devicePath] = read
		}
	}
	annotations[deviceinfo.UsageAnnotation] = deviceinfo.EncodeUsage(usage,
		deviceinfo.MaxBytes-sizeWith(node, annotations))
}

// checkSize returns an error for an annotation that the API server would refuse.
func checkSize(node *corev1.Node, value string) error {
	if total := sizeWith(node, map[string]string{deviceinfo.Annotation: value}); total > deviceinfo.MaxBytes {
		return fmt.Errorf(
			"publish the devices of node %q: the inventory has %d bytes, and all of the node's annotations would "+
				"have %d of %d that Kubernetes allows; "+
				"let the plugins report fewer resources, or shorter names", node.Name, len(value), total,
			deviceinfo.MaxBytes)
	}
	return nil
}

// sizeWith returns the size of all of the node's annotations, as the API server counts it, when
// these are published. Attributes and usage count only if they are among these: they get what the
// others leave, in the same patch.
func sizeWith(node *corev1.Node, published map[string]string) (total int) {
	for key, value := range node.Annotations {
		if _, replaced := published[key]; !replaced && key != deviceinfo.AttributesAnnotation &&
			key != deviceinfo.UsageAnnotation {
			total += len(key) + len(value)
		}
	}
	for key, value := range published {
		total += len(key) + len(value)
	}
	return total
}

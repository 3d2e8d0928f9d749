// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// wanted is what a node with some inventory should look like.
type wanted struct {
	// annotation is the value of KubeDevice/DeviceInfo, or empty for a node without devices.
	annotation string
	// counts are the extended resources. Capacity and allocatable are the same, since the kubelet derives allocatable from
	// capacity: what must not be used is in neither.
	counts map[corev1.ResourceName]int64
}

// want returns what a node with that inventory should look like.
func want(inventory *types.NodeInfo) (wanted, error) {
	w := wanted{counts: map[corev1.ResourceName]int64{}}
	for name := range inventory.KubeCap {
		w.counts[corev1.ResourceName(name)] = inventory.KubeAlloc[name]
	}
	if len(inventory.Capacity)+len(inventory.Allocatable) == 0 {
		return w, nil
	}
	value, err := deviceinfo.EncodeNode(inventory)
	if err != nil {
		return wanted{}, fmt.Errorf("publish the devices of node %q, %d resources: %w; let the device plugins tell fewer resources, or shorter names",
			inventory.Name, len(inventory.Capacity), err)
	}
	w.annotation = value
	return w, nil
}

// patch returns the JSON merge patch that makes node as wanted, or nil if it is. It touches the annotation and the extended
// resources that are wanted or stand in the node's annotation, which is how those of an earlier inventory are known.
func patch(node *corev1.Node, w wanted) ([]byte, error) {
	annotations := map[string]any{}
	before, annotated := node.Annotations[deviceinfo.Annotation]
	switch {
	case w.annotation == "" && annotated:
		annotations[deviceinfo.Annotation] = nil
	case w.annotation != "" && w.annotation != before:
		if err := checkRoom(node, w.annotation); err != nil {
			return nil, err
		}
		annotations[deviceinfo.Annotation] = w.annotation
	}
	capacity, allocatable := map[corev1.ResourceName]any{}, map[corev1.ResourceName]any{}
	for _, extended := range published(before) {
		name := corev1.ResourceName(extended)
		if _, still := w.counts[name]; !still {
			removeFrom(capacity, node.Status.Capacity, name)
			removeFrom(allocatable, node.Status.Allocatable, name)
		}
	}
	for name, count := range w.counts {
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

// published returns the extended resources in a node's annotation, sorted: the plain names among its capacity.
func published(annotation string) []string {
	if annotation == "" {
		return nil
	}
	info, err := deviceinfo.DecodeNode(annotation)
	if err != nil {
		// Somebody else wrote it; it is about to be replaced.
		return nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(info.Capacity)) {
		if !strings.HasPrefix(string(name), types.DeviceGroupPrefix+"/") {
			names = append(names, string(name))
		}
	}
	return names
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

// checkRoom says in words what the API server would refuse.
func checkRoom(node *corev1.Node, value string) error {
	total := len(deviceinfo.Annotation) + len(value)
	for key, other := range node.Annotations {
		if key != deviceinfo.Annotation {
			total += len(key) + len(other)
		}
	}
	if total > deviceinfo.MaxBytes {
		return fmt.Errorf("publish the devices of node %q: the inventory has %d bytes, and all of the node's annotations would have %d of %d that Kubernetes allows; "+
			"let the plugins tell fewer resources, or shorter names", node.Name, len(value), total, deviceinfo.MaxBytes)
	}
	return nil
}

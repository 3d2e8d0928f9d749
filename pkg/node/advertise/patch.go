// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// patch returns the JSON merge patch that sets the node's annotation, or removes it if it is empty,
// and its counts. It returns nil if the node has them. The patch removes extended resources that
// only the node's present annotation lists.
func patch(node *corev1.Node, annotation string, counts map[corev1.ResourceName]int64) ([]byte, error) {
	annotations := map[string]any{}
	before, annotated := node.Annotations[deviceinfo.Annotation]
	switch {
	case annotation == "" && annotated:
		annotations[deviceinfo.Annotation] = nil
	case annotation != "" && annotation != before:
		annotations[deviceinfo.Annotation] = annotation
	}
	capacity, allocatable := map[corev1.ResourceName]any{}, map[corev1.ResourceName]any{}
	for _, extended := range publishedNames(node) {
		name := corev1.ResourceName(extended)
		if _, still := counts[name]; !still {
			removeFrom(capacity, node.Status.Capacity, name)
			removeFrom(allocatable, node.Status.Allocatable, name)
		}
	}
	for name, count := range counts {
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

// checkSize returns an error for an annotation that the API server would refuse.
func checkSize(node *corev1.Node, value string) error {
	total := len(deviceinfo.Annotation) + len(value)
	for key, other := range node.Annotations {
		if key != deviceinfo.Annotation {
			total += len(key) + len(other)
		}
	}
	if total > deviceinfo.MaxBytes {
		return fmt.Errorf(
			"publish the devices of node %q: the inventory has %d bytes, and all of the node's annotations would "+
				"have %d of %d that Kubernetes allows; "+
				"let the plugins report fewer resources, or shorter names", node.Name, len(value), total,
			deviceinfo.MaxBytes)
	}
	return nil
}

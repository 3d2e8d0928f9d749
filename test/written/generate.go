// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package written makes random pods that request GPUs, with and without mistakes, and reads what
// they request. Its parser shares no code with what the tests test.
package written

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// RandomPod returns a pod of up to three containers of all kinds, with counts and an annotation,
// which may have mistakes. The containers have the image of the nodes and no command. The same
// state of r makes the same pod.
func RandomPod(r *rand.Rand, name string) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox)
	pod.Spec.Containers = nil
	lists := map[string]map[string]any{"initcontainer": {}, "runningcontainer": {}}
	for i := range 1 + r.IntN(3) {
		container := corev1.Container{Name: fmt.Sprint("c", i), Image: image.Busybox}
		if limit := r.IntN(4); limit > 0 {
			container.Resources.Limits = corev1.ResourceList{
				corev1.ResourceName(gpu.Resource): *resource.NewQuantity(int64(limit), resource.DecimalSI)}
		}
		list := "runningcontainer"
		switch kind := r.IntN(5); {
		case i == 0 || kind > 1:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		case kind == 1:
			container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		default:
			list = "initcontainer"
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		}
		if r.IntN(4) > 0 {
			lists[list][container.Name] = randomContainer(r)
		}
	}
	annotation := map[string]any{}
	for list, containers := range lists {
		if len(containers) > 0 {
			annotation[list] = containers
		}
	}
	switch r.IntN(16) {
	case 0:
		annotation["runningcontainers"] = map[string]any{}
	case 1:
		annotation["policy"] = "spread"
	case 2:
		annotation["requests"] = map[string]any{"gpu/gpu-generate-topologie": 0}
	case 3:
		annotation["requests"] = map[string]any{"gpu/a/cards": 1}
	case 4:
		annotation["requests"] = map[string]any{"gpu/gpu-generate-topology": 0}
	}
	if len(annotation) > 0 {
		text, _ := json.Marshal(annotation)
		pod.Annotations = map[string]string{deviceinfo.Annotation: string(text)}
	}
	return pod
}

// Text returns what a pod says of its containers and devices, for messages of tests.
func Text(pod *corev1.Pod) string {
	text, _ := json.Marshal(map[string]any{"annotation": pod.Annotations, "init": pod.Spec.InitContainers,
		"containers": pod.Spec.Containers})
	return string(text)
}

// randomContainer returns what a container has in the annotation.
func randomContainer(r *rand.Rand) map[string]any {
	forms := []map[string]any{
		{"gpu/a/cards": 1},
		{"gpugrp0/A/gpu/a/cards": 1, "gpugrp0/A/gpu/b/cards": 1},
		{"gpugrp0/!A/gpu/a/cards": 1, "gpugrp0/!B/gpu/a/cards": 1},
		{"gpu/m/memory": "20Gi"},
		{"gpu/!m/memory": "512Mi", "gpu/!n/memory": 1 << 30},
		{"resource/group/gpu/x/cards": 1, "resource/group/gpu/x/memory": 1 << 30},
		{"nvidia.com/gpu": 2},
		{"gpu/gpu-generate-topology": 0},
	}
	wrong := []map[string]any{
		{"fpga/a/region": 1}, {"vendor.example/fpga": 1}, {"numa/A/nvidia.com/gpu": 2}, {"gpugrp0/A/gpu/a": 1},
		{"gpu/gpu-generate-topologie": 0}, {"gpu/s/memory": 20480}, {"gpu/q/memory": "20GB"}, {"nvidia.com/gpus": 1},
		{"gpu/=gpu-0/cards": 1}, {"gpu/gpu-generate-topology": 2}, {"nvidia.com/gpu": 0}, {"gpu/z/cards": 0},
		{"smarter-devices/video0": 1},
	}
	requests := map[string]any{}
	for range r.IntN(3) {
		maps.Copy(requests, forms[r.IntN(len(forms))])
	}
	if r.IntN(3) == 0 {
		maps.Copy(requests, wrong[r.IntN(len(wrong))])
	}
	container := map[string]any{"requests": requests}
	if r.IntN(12) == 0 {
		container["request"] = map[string]any{"gpu/a/cards": 1}
	}
	return container
}

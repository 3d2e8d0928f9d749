// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The annotations of HAMi.
const (
	useType    = "nvidia.com/use-gputype"
	noUseType  = "nvidia.com/nouse-gputype"
	useUUID    = "nvidia.com/use-gpuuuid"
	noUseUUID  = "nvidia.com/nouse-gpuuuid"
	useIndexes = "nvidia.com/use-gpuindexes"
	noUseIndex = "nvidia.com/nouse-gpuindexes"
	numaBind   = "nvidia.com/numa-bind"
	vgpuMode   = "nvidia.com/vgpu-mode"
	gpuPolicy  = "hami.io/gpu-scheduler-policy"
	nodePolicy = "hami.io/node-scheduler-policy"
	weights    = "hami.io/device-scoring-weights"
)

// The annotations of KAI.
const (
	fraction          = "gpu-fraction"
	fractionLimit     = "gpu-fraction.limit"
	fractionContainer = "gpu-fraction-container-name"
	fractionDevices   = "gpu-fraction-num-devices"
	kaiMemory         = "gpu-memory"
	kaiMemoryLimit    = "gpu-memory.limit"
	smPercentage      = "gpu-sm-percentage"
	smCores           = "gpu-sm-cores"
	sharingMode       = "kai.scheduler/gpu-compute-sharing-mode"

	// containerPrefix begins the annotations for one container, before its name. What follows the
	// name is one of the suffixes.
	containerPrefix = "nvidia.com/container."
	memoryRequest   = ".gpu-memory.request"
	memoryLimit     = ".gpu-memory.limit"
	computeMode     = ".gpu-compute.mode"
	binderDevices   = ".gpus.devices"
)

// annotations are all annotations but those for one container.
var annotations = map[string]bool{
	useType: true, noUseType: true, useUUID: true, noUseUUID: true, useIndexes: true, noUseIndex: true,
	numaBind: true, vgpuMode: true, gpuPolicy: true, nodePolicy: true, weights: true,
	fraction: true, fractionLimit: true, fractionContainer: true, fractionDevices: true,
	kaiMemory: true, kaiMemoryLimit: true, smPercentage: true, smCores: true, sharingMode: true,
}

// isAnnotation reports whether a key is one of these names.
func isAnnotation(key string) bool {
	return annotations[key] || strings.HasPrefix(key, containerPrefix)
}

// isRequest reports whether the annotation of a key requests devices.
func isRequest(key string) bool {
	return key == fraction || key == kaiMemory || strings.HasPrefix(key, containerPrefix)
}

// annotationsOf returns the keys of the pod's annotations of these names, sorted.
func annotationsOf(pod *corev1.Pod) (keys []string) {
	for key := range pod.Annotations {
		if isAnnotation(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

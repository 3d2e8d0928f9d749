// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestARequestThatNoNodeCanServeIsAnErrorWithWhatToWrite(t *testing.T) {
	// smarter-devices/video0 may be an option of a device scheduler.
	isForDevices := map[types.ResourceName]bool{
		"gpu/a/cards": true, "nvidia.com/gpu": true, "resource/group/tokens": true, "gpugrp0/!A/gpu/!a/cards": true,
		"numa/A/nvidia.com:gpu": true, "numa/A/smarter-devices:video0": true, "numa/=1/nvidia.com:gpu": true,
		"numa/A/nvidia.com:gpu/=GPU-1/device": true,
	}
	for request, want := range map[string]string{
		"gpu/a/cards": "", "gpu/gpu-generate-topology": "", "resource/group/gpu/gpu-generate-topology": "",
		"nvidia.com/gpu": "", "resource/group/tokens": "", "smarter-devices/video0": "", "gpugrp0/!A/gpu/!a/cards": "",
		"numa/A/nvidia.com:gpu": "", "numa/A/smarter-devices:video0": "", "numa/=1/nvidia.com:gpu": "",
		"numa/A/nvidia.com:gpu/=GPU-1/device": "", "numa/A/nvidia.com:gpu/=GPU-1/device 0": "",
		"gpu/gpu-generate-topology 0": "", "gpu/other 7": "", "numa/A/nvidia.com:gpu 4096": "",

		// names
		"numa/A/nvidia.com/gpu":         "write numa/A/nvidia.com:gpu",
		"numa/A/smarter-devices/video0": "write numa/A/smarter-devices:video0",
		"gpu/a/b/cards":                 "write <level>/<placeholder>/…/<resource>, such as gpugrp0/A/gpu/a/cards",

		"numa/!A/nvidia.com:gpu":          "name them, such as numa/=0/nvidia.com:gpu",
		"numa/!A/nvidia.com:gpu/0/device": "name them, such as numa/=0/nvidia.com:gpu",

		"gpu/=GPU-1/cards":            "gpu cannot be requested by its ID (=GPU-1): write a placeholder, such as gpu/a",
		"gpugrp0/=0/gpu/a/cards":      "gpugrp0 cannot be requested by its ID (=0): write a placeholder",
		"numa/=0/gpu/a/cards":         "numa cannot be requested by its ID (=0): write a placeholder",
		"numa/=/nvidia.com:gpu":       `no name behind "=": add the ID of a device or the number of a NUMA node`,
		"numa/A/a.b:c/=/device":       `no name behind "=": add the ID of a device or the number of a NUMA node`,
		"resource/group/gpu/=1/cards": "gpu cannot be requested by its ID (=1)",

		// quantities
		"nvidia.com/gpu 0":              "nvidia.com/gpu is 0: write how much of it, or remove it",
		"gpu/a/memory 0":                "gpu/a/memory is 0: write how much of it, or remove it",
		"numa/A/nvidia.com:gpu 0":       "numa/A/nvidia.com:gpu is 0: request 1 to 4096",
		"numa/A/nvidia.com:gpu 4097":    "numa/A/nvidia.com:gpu is 4097: request 1 to 4096",
		"numa/A/a.b:c/x/device 0":       "numa/A/a.b:c/x/device is 0: request 1 of it, or several without naming each",
		"numa/A/a.b:c/x/device 2":       "numa/A/a.b:c/x/device is 2: request 1 of it, or several without naming each",
		"numa/A/a.b:c/=x/device 2":      "numa/A/a.b:c/=x/device is 2: request 1 of it",
		"gpu/gpu-generate-topology 2":   "is 2: use 1 to require the best topology, 0 for GPUs anywhere",
		"resource/group/tokens 0":       "is 0: write how much of it",
		"resource/group/numa/A/a.b:c 0": "is 0: request 1 to 4096",
	} {
		name, quantity := types.ResourceName(request), int64(1)
		if written, number, has := strings.Cut(request, " "); has {
			name, quantity = types.ResourceName(written), 0
			for _, digit := range number {
				quantity = 10*quantity + int64(digit-'0')
			}
		}
		requests := types.ResourceList{name: quantity}
		for field, pod := range map[string]types.PodInfo{
			"requests": {Requests: requests},
			`initcontainer["i"].requests`: {
				InitContainers: map[string]types.ContainerInfo{"i": {Requests: requests}}},
			`runningcontainer["r"].requests`: {
				RunningContainers: map[string]types.ContainerInfo{"r": {Requests: requests}}},
		} {
			err, want := CheckRequests(&pod), want
			if field == "requests" && want == "" && quantity > 0 && isForDevices[name] {
				want = "a pod as a whole gets no devices: write the request under one of its containers"
			}
			if err == nil && want == "" {
				continue
			}
			start := "annotation KubeDevice/DeviceInfo: " + field
			if err == nil || want == "" || !strings.HasPrefix(err.Error(), start) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %q", field, request, err, want)
			}
		}
	}
}

func TestADeviceIsNotRequestedAndExcluded(t *testing.T) {
	const request = "numa/A/a.b:c/=x/device"
	const want = "the pod requests and excludes the device x of a.b/c: remove this or " +
		"resource/group/numa/B/a.b:c/=x/device"
	pod := &types.PodInfo{
		Requests: types.ResourceList{"resource/group/numa/B/a.b:c/=x/device": 0},
		RunningContainers: map[string]types.ContainerInfo{
			"main": {Requests: types.ResourceList{request: 1, "numa/A/a.b:d/=x/device": 1, "numa/A/a.b:c": 1}},
		},
	}
	found := Errors(pod)
	if len(found) != 1 || found[0].Request != request || found[0].Problem.Error() != want {
		t.Errorf("found %v, want %q", found, want)
	}
}

func TestAnUnknownScorerIsAnError(t *testing.T) {
	pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {
		Requests: types.ResourceList{"gpu/a/cards": 1, "gpu/b/cards": 1, "gpu/c/cards": 1},
		Scorer:   types.ResourceScorer{"gpu/a/cards": 7, "resource/group/gpu/b/cards": 7, "gpu/c/cards": 1},
	}}}
	found := Errors(pod)
	if len(found) != 2 || !strings.Contains(found[1].Error(), `requests["gpu/b/cards"]: scorer 7 is unknown`) {
		t.Errorf("found %v", found)
	}
}

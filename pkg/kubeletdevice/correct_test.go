// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMisspelledRequestsGetTheRightSpelling(t *testing.T) {
	for request, want := range map[types.ResourceName]types.ResourceName{
		"numa/A/nvidia.com/gpu":                       "numa/A/nvidia.com:gpu",
		"numa/A/nvidia.com/gpu/0/device":              "numa/A/nvidia.com:gpu/0/device",
		"numa/A/nvidia.com:gpu/0/devices":             "numa/A/nvidia.com:gpu/0/device",
		"numa/A/nvidia.com:gpu/0":                     "numa/A/nvidia.com:gpu/0/device",
		"numa/=1/intel.com/qat":                       "numa/=1/intel.com:qat",
		"numa/B/intel.com/qat/=0000:3d:01.0":          "numa/B/intel.com:qat/=0000:3d:01.0/device",
		"numa/nvidia.com:gpu/device":                  "numa/A/nvidia.com:gpu/device/device",
		"numa/A/vendor.example:nic/=eth0/1/device":    "numa/A/vendor.example:nic/=eth0%2F1/device",
		"numa/A/vendor.example/nic/=eth0/1/2/devices": "numa/A/vendor.example:nic/=eth0%2F1%2F2/device",
		"numa/A/vendor.example:nic/=a%2Fb/1/device":   "numa/A/vendor.example:nic/=a%2Fb%2F1/device",
		"numa/A/vendor.example:nic/=eth0/1":           "numa/A/vendor.example:nic/=eth0%2F1/device",
		"numa/A/vendor.example:nic/x/1/device":        "numa/A/vendor.example:nic/x/device",

		"resource/group/numa/A/nvidia.com/gpu": "resource/group/numa/A/nvidia.com:gpu",

		"numa/A/smarter-devices/video0":          "numa/A/smarter-devices:video0",
		"numa/A/smarter-devices/video0/0/device": "numa/A/smarter-devices:video0/0/device",
		"numa/A/smarter-devices:video0/0":        "numa/A/smarter-devices:video0/0/device",
		"numa/A/smarter-devices:video0":          "", // right

		"numa/A/nvidia.com:gpu":                  "", // right
		"numa/A/nvidia.com:gpu/=g0/device":       "",
		"numa/rack.1/nvidia.com:gpu":             "",
		"resource/group/numa/A/nvidia.com:gpu/0": "resource/group/numa/A/nvidia.com:gpu/0/device",
		"numa/A/gpu/0/device":                    "", // of another kind
		"gpugrp0/A/nvidia.com/gpu":               "",
		"numa/A/gpu/b/cards/x":                   "",
		"numa/A":                                 "",
		"numa/A/nvidia.com/":                     "",
		"numa/A/kubernetes.io/x":                 "", // no extended resource
	} {
		if right, ok := Correct(request); right != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", request, right, ok, want)
		}
	}
}

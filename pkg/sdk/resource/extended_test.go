// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestExtendedResourcesHaveADomainOfTheirOwn(t *testing.T) {
	long := strings.Repeat("a", 63)
	domain := strings.Repeat("a.", 121) + "aa" // with "requests." in front of it 253 bytes
	tests := map[string]bool{
		"nvidia.com/gpu":                true,
		"intel.com/mig-1g.10gb":         true,
		"vendor.example/A_b.c-9":        true,
		"vendor/device":                 true,
		"1.2/3":                         true,
		"vendor.example/" + long:        true,
		domain + "/device":              true,
		"kubernetes.io.example/device":  true,
		"":                              false,
		"cpu":                           false,
		"nvidia.com":                    false,
		"/gpu":                          false,
		"nvidia.com/":                   false,
		"nvidia.com/gpu/cards":          false,
		"resource/group/gpu/0/cards":    false,
		"Nvidia.com/gpu":                false,
		"nvidia..com/gpu":               false,
		".com/gpu":                      false,
		"-nvidia.com/gpu":               false,
		"nvidia-.com/gpu":               false,
		"nvidia.com/-gpu":               false,
		"nvidia.com/gpu_":               false,
		"nvidia.com/g p":                false,
		"nvidia.com/gpü":                false,
		"nvidia.com/gpu\n":              false,
		"vendor.example/" + long + "a":  false,
		"a" + domain + "/device":        false,
		"kubernetes.io/batch-cpu":       false,
		"node.kubernetes.io/device":     false,
		"mykubernetes.io/gpu":           false, // upstream searches for the text, not for a domain
		"requests.nvidia.com/gpu":       false,
		"attachable-volumes-csi/driver": true,
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			if got := resource.IsExtendedResource(types.ResourceName(name)); got != want {
				t.Errorf("IsExtendedResource = %v, want %v", got, want)
			}
		})
	}
}

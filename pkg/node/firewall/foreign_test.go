// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The kubelet allocates NVIDIA's devices, and NVIDIA's runtime takes names of any CDI devices.
func TestARuntimeThatIsNotGuardedGivesNoCDIDevicesOfGuardedVendors(t *testing.T) {
	mixed := node{
		own: []types.ResourceName{"amd.com/gpu", "example.com/fpga"}, kubelet: []types.ResourceName{"nvidia.com/gpu"},
		files: []string{"/dev/nvidiactl"},
	}
	nvidias := injections("nvidia.com/gpu", "NVIDIA_VISIBLE_DEVICES=GPU-1")
	for name, test := range map[string]struct {
		node    node
		value   string // of NVIDIA_VISIBLE_DEVICES
		mount   string // below the list of devices
		gifts   []KubeletInjection
		refused bool
	}{
		"all of its own":                        {node: mixed, value: "all"},
		"nothing":                               {node: mixed, value: ""},
		"its own by CDI":                        {node: mixed, value: "nvidia.com/gpu=all"},
		"another vendor's":                      {node: mixed, value: "amd.com/gpu=all", refused: true},
		"one that is not built in":              {node: mixed, value: "example.com/fpga=0", refused: true},
		"one behind its own, with a blank":      {node: mixed, value: "nvidia.com/gpu=0, amd.com/gpu=1", refused: true},
		"one of nobody's here":                  {node: mixed, value: "other.com/nic=0"},
		"one over what its plugin gave":         {node: mixed, value: "amd.com/gpu=1", gifts: nvidias, refused: true},
		"its own over what its plugin gave":     {node: mixed, value: "0", gifts: nvidias},
		"a mount of its own":                    {node: mixed, mount: "all"},
		"a mount of its own by CDI":             {node: mixed, mount: "cdi/nvidia.com/gpu/all"},
		"a mount of another vendor's":           {node: mixed, mount: "cdi/amd.com/gpu/all", refused: true},
		"a mount in the short form":             {node: mixed, mount: "cdi/amd.com/gpu=all", refused: true},
		"a mount in a roundabout form":          {node: mixed, mount: "x/..//cdi/./amd.com/gpu/all", refused: true},
		"another vendor's without NVIDIA there": {node: node{own: mixed.own}, value: "amd.com/gpu=all", refused: true},
		"all of NVIDIA's without NVIDIA there":  {node: node{own: mixed.own}, value: "all"},
		"another vendor's before the driver is loaded": {
			node: node{own: mixed.own, kubelet: mixed.kubelet}, value: "amd.com/gpu=all", refused: true,
		},
		"without a guarded vendor": {
			node: node{kubelet: mixed.kubelet, files: mixed.files}, value: "amd.com/gpu=all",
		},
	} {
		guard := test.node.guard(t)
		for _, adjusted := range []bool{false, true} {
			c := Container{
				Config:  configOf([]string{"NVIDIA_VISIBLE_DEVICES=" + test.value}),
				Kubelet: test.gifts, Adjusted: adjusted,
			}
			if test.mount != "" {
				c.Config = &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{
					HostPath: "/dev/null", ContainerPath: "/var/run/nvidia-container-devices/" + test.mount,
				}}}
			}
			o := guard.Neutralise(c, nil, false)
			refused := append(guard.Refused(c), o.Refused...)
			if (len(refused) > 0) != test.refused {
				t.Errorf("%s, by NRI %t: refused for %v, want %t", name, adjusted, refused, test.refused)
			}
			for _, set := range pairs(o.Set) {
				if set == "NVIDIA_VISIBLE_DEVICES=" || set == "NVIDIA_VISIBLE_DEVICES=void" {
					t.Errorf("%s: %s is set where the vendor is not guarded", name, set)
				}
			}
			c.Kubelet = nil
			if taken := append(guard.Refused(c), guard.Taken(c)...); (len(taken) > 0) != test.refused {
				t.Errorf("%s in a container that runs: %v, want an attempt %t", name, taken, test.refused)
			}
		}
	}
}

func TestTheResourcesOfAVendorMayHaveTheDomainOfAnother(t *testing.T) {
	guard := node{own: []types.ResourceName{"amd.com/xilinx_u55c_gen3x16_xdma_base_3-0"}}.guard(t)
	o := guard.Neutralise(Container{Config: configOf([]string{"XILINX_VISIBLE_DEVICES=all"})}, nil, false)
	got := map[string]bool{}
	for _, set := range pairs(o.Set) {
		got[set] = true
	}
	if !got["XILINX_VISIBLE_DEVICES="] || !got["AMD_VISIBLE_DEVICES=none"] || len(o.Ended) != 1 {
		t.Errorf("%q are set, and %v are attempts", pairs(o.Set), o.Ended)
	}
	for _, set := range pairs((node{own: []types.ResourceName{"amd.com/gpu"}}).guard(t).Neutralise(
		Container{Config: configOf(nil)}, nil, false).Set) {
		if set != "AMD_VISIBLE_DEVICES=none" {
			t.Errorf("on a node with GPUs alone, %s is set", set)
		}
	}
}

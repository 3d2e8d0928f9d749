// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestAnAnswerThatOnlyNamesDevicesNeedsTheVendorsRuntime(t *testing.T) {
	env := func(name, value string) []*runtimeapi.KeyValue {
		return []*runtimeapi.KeyValue{{Key: name, Value: []byte(value)}}
	}
	type answer = runtimeapi.ContainerConfig
	runtimes := NewRuntimes([]Vendor{{
		Name: "mthreads.com", DeviceFiles: []string{"/dev/mtgpu*"},
		Variables: []Variable{{Name: "MTHREADS_VISIBLE_DEVICES", Nothing: "none"}},
	}})
	for name, test := range map[string]struct {
		answer *answer
		want   map[string]string // what is requested, by vendor
	}{
		"nothing": {answer: &answer{}},
		"NVIDIA's variable": {
			answer: &answer{Envs: env("NVIDIA_VISIBLE_DEVICES", "GPU-1")},
			want:   map[string]string{"nvidia.com": "NVIDIA_VISIBLE_DEVICES=GPU-1"},
		},
		"NVIDIA's variable for no device": {answer: &answer{Envs: env("NVIDIA_VISIBLE_DEVICES", "void")}},
		"NVIDIA's variable and device files": {answer: &answer{
			Envs: env("NVIDIA_VISIBLE_DEVICES", "GPU-1"), Devices: []*runtimeapi.Device{{HostPath: "/dev/nvidia0"}},
		}},
		"NVIDIA's variable and another vendor's device file": {
			answer: &answer{
				Envs: env("NVIDIA_VISIBLE_DEVICES", "GPU-1"), Devices: []*runtimeapi.Device{{HostPath: "/dev/kfd"}},
			},
			want: map[string]string{"nvidia.com": "NVIDIA_VISIBLE_DEVICES=GPU-1"},
		},
		"NVIDIA's variable and a CDI device": {answer: &answer{
			Envs:       env("NVIDIA_VISIBLE_DEVICES", "GPU-1"),
			CDIDevices: []*runtimeapi.CDIDevice{{Name: "nvidia.com/gpu=GPU-1"}},
		}},
		"a mount for NVIDIA's runtime": {
			answer: &answer{Mounts: []*runtimeapi.Mount{
				{HostPath: "/dev/null", ContainerPath: "/var/run/nvidia-container-devices/GPU-1"},
			}},
			want: map[string]string{"nvidia.com": "/var/run/nvidia-container-devices/GPU-1"},
		},
		"a variable that only adds to NVIDIA's devices": {answer: &answer{Envs: env("NVIDIA_MOFED", "enabled")}},
		"Ascend's variable": {
			answer: &answer{Envs: env("ASCEND_VISIBLE_DEVICES", "0")},
			want:   map[string]string{"huawei.com": "ASCEND_VISIBLE_DEVICES=0"},
		},
		"the variable of a declared vendor": {
			answer: &answer{Envs: env("MTHREADS_VISIBLE_DEVICES", "0")},
			want:   map[string]string{"mthreads.com": "MTHREADS_VISIBLE_DEVICES=0"},
		},
		"any other variable": {answer: &answer{Envs: env("GPUS", "all")}},
	} {
		var got map[string]string
		for _, expected := range runtimes.Expected(test.answer) {
			if got == nil {
				got = map[string]string{}
			}
			got[expected.Vendor] = expected.Request
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnlyThePathsOfAVendorsDevicesGiveThemToAContainer(t *testing.T) {
	e := Expected{Files: []string{"/dev/nvidia*", "/dev/dri/*"}}
	for path, want := range map[string]bool{
		"/dev/nvidia0": true, "/dev/nvidiactl": true, "/dev/dri/card0": true, "/dev/dri": true, "/dev": true,
		"/dev/./nvidia0": true, "/dev/null": false, "/dev/shm": false, "/nvidia0": false,
	} {
		if got := e.Has(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

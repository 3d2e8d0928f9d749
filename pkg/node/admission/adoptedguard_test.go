// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const adoptedGPU types.ResourceName = "resource/group/numa/0/nvidia.com:gpu/GPU-7/device"

// adoptGPU makes u a pod whose container main has a GPU from NVIDIA's plugin of the kubelet.
func (f *fixture) adoptGPU() {
	info := types.NewPodInfo()
	info.Name, info.NodeName = "pod-u", "node-1"
	info.RunningContainers["main"] = given(adoptedGPU)
	f.adopted = []grants.Allocation{{
		PodUID: "u", Namespace: "default", Name: "pod-u", Adopted: true, PodInfo: info,
	}}
	f.pods["u"] = podThatRequests("nvidia.com/gpu")
	f.Adopted = adoptedDevices(func(string, string) ([]types.ResourceName, error) {
		return []types.ResourceName{adoptedGPU}, nil
	})
	f.injections = []firewall.KubeletInjection{{
		Resource: "nvidia.com/gpu", Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-7"},
		Mounts:     []string{"/var/run/nvidia-container-devices/GPU-7"},
		CDIDevices: []string{"nvidia.com/gpu=GPU-7"},
	}}
	f.Firewall = f.wall
}

func TestAContainerOfAnAdoptedPodGetsNothingBesidesWhatTheKubeletGave(t *testing.T) {
	const visible = "NVIDIA_VISIBLE_DEVICES"
	own := []*runtimeapi.KeyValue{{Key: visible, Value: []byte("GPU-7")}}
	for name, test := range map[string]struct {
		annotations map[string]string
		config      *runtimeapi.ContainerConfig
		code        codes.Code
		says        string // of the error, or of the event
	}{
		"what the kubelet gave stays": {config: &runtimeapi.ContainerConfig{
			Envs:       own,
			Mounts:     []*runtimeapi.Mount{{ContainerPath: "/var/run/nvidia-container-devices/GPU-7"}},
			CDIDevices: []*runtimeapi.CDIDevice{{Name: "nvidia.com/gpu=GPU-7"}},
		}},
		"a variable of the pod's is overridden by it": {
			config: &runtimeapi.ContainerConfig{
				Envs: append(own[:1:1], &runtimeapi.KeyValue{Key: visible, Value: []byte("all")}),
			},
			says: "NVIDIA_VISIBLE_DEVICES=all requests",
		},
		"an annotation is refused": {
			annotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=all"},
			config:      &runtimeapi.ContainerConfig{Envs: own}, code: codes.FailedPrecondition, says: "cdi.k8s.io/x",
		},
		"another mount is refused": {
			config: &runtimeapi.ContainerConfig{
				Envs: own, Mounts: []*runtimeapi.Mount{{ContainerPath: "/var/run/nvidia-container-devices/all"}},
			},
			code: codes.FailedPrecondition, says: "the mount at /var/run/nvidia-container-devices/all",
		},
		"another CDI device is refused": {
			config: &runtimeapi.ContainerConfig{
				Envs: own, CDIDevices: []*runtimeapi.CDIDevice{{Name: "nvidia.com/gpu=all"}},
			},
			code: codes.FailedPrecondition, says: "the CDI device nvidia.com/gpu=all",
		},
	} {
		for _, withImage := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with the image's variables %t", name, withImage), func(t *testing.T) {
				f := fixtureWith(t, &gpus{})
				f.adoptGPU()
				f.withImage = withImage
				test.config.Metadata = &runtimeapi.ContainerMetadata{Name: "main"}
				got, err := f.createAs(t, "u", "api", test.annotations, test.config)
				said := strings.Join(f.ignored, "\n")
				if err != nil {
					said = err.Error()
				}
				if status.Code(err) != test.code || !strings.Contains(said, test.says) ||
					(said == "") != (test.says == "") {
					t.Fatalf("the answer is %v, the events are %q; want %v with %q", err, f.ignored, test.code,
						test.says)
				}
				if err != nil {
					return
				}
				value := ""
				for _, env := range got.GetEnvs() {
					if env.GetKey() == visible {
						value = string(env.GetValue())
					}
				}
				if value != "GPU-7" {
					t.Errorf("%s=%s", visible, value)
				}
			})
		}
	}
}

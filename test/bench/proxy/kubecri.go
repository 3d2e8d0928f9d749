// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/await"
)

// gpuResource is how simulated GPUs are counted.
const gpuResource = "nvidia.com/gpu"

// startKubecri starts the real program of that variant with simulated GPUs, on a node that knows
// its pods from before, as after a restart while the API server is away. It returns when a
// container of the device pod was allocated its device, and so the pod's grant is written.
func (b *bench) startKubecri(ctx context.Context, variant, dir, upstream string) (*process, error) {
	build := b.builds[variant]
	dir, err := os.MkdirTemp(dir, "kubecri-")
	if err != nil {
		return nil, err
	}
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	if err := rememberPods(ctx, filepath.Join(state, "pods")); err != nil {
		return nil, err
	}
	plugins := filepath.Join(dir, "plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		return nil, err
	}
	plugin, err := filepath.Abs(build.plugin)
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(plugin, filepath.Join(plugins, "simgpu.so")); err != nil {
		return nil, err
	}
	devices, err := filepath.Abs(filepath.Join(dir, "dev"))
	if err != nil {
		return nil, err
	}
	inventory := filepath.Join(dir, "simgpu.yaml")
	if err := os.WriteFile(inventory, fmt.Appendf(nil, "count: 8\ndeviceDir: %s\n", devices), 0o644); err != nil {
		return nil, err
	}
	socket := filepath.Join(filepath.Dir(upstream), filepath.Base(dir)+".sock")
	command := exec.Command(build.program, "--container-runtime-endpoint=unix://"+socket,
		"--cri-upstream=unix://"+upstream, "--state-dir="+state,
		"--cridevices="+plugins, "--metrics-bind-address=", "--hostname-override="+nodeName)
	command.Env = append(os.Environ(), "KUBEDEVICE_SIMGPU_CONFIG="+inventory)
	p, err := start(ctx, socket, command)
	if err != nil {
		return nil, err
	}
	if err := awaitCall(ctx, socket, b.ready); err != nil {
		p.stop()
		return nil, fmt.Errorf("kubecri does not create containers with devices: %w: %s", err, p.said())
	}
	return p, nil
}

// rememberPods writes the file of the node's pods as kubecri does.
func rememberPods(ctx context.Context, file string) error {
	pod := func(uid string, limits corev1.ResourceList) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)},
			Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Limits: limits},
			}}},
		}
	}
	client := fake.NewClientset(pod(plainPod, nil),
		pod(devicePod, corev1.ResourceList{gpuResource: resource.MustParse("1")}))
	registry := pods.NewRegistry(0)
	registry.Follow(gpuPlugin{})
	registry.DeviceResources()
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Background()))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		registry.Watch(ctx, client, nodeName)
	}()
	waiting, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	err := await.Success(waiting, "the node's pods", func(context.Context) error { return registry.Check() })
	cancel()
	<-watched
	if err != nil {
		return fmt.Errorf("make the file of the node's pods: %w", err)
	}
	registry.KeepSaved(ctx, file)
	_, err = os.Stat(file)
	return err
}

// gpuPlugin publishes one resource.
type gpuPlugin struct{}

// ExtendedResources implements pods.Plugins.
func (gpuPlugin) ExtendedResources() ([]sdk.ResourceName, bool) {
	return []sdk.ResourceName{gpuResource}, true
}

// awaitCall makes the call until it works.
func awaitCall(ctx context.Context, socket string, w *workload) error {
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return await.Success(ctx, "a call to "+socket, func(ctx context.Context) error {
		_, err := call(ctx, conn, w)
		return err
	})
}

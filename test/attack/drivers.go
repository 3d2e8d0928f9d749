// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"context"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/dradriver"
	"github.com/kubedevice/kubedevice/test/kube"
)

// servedPlugin is a device plugin that is registered with the kubelet or with kubecri.
type servedPlugin struct {
	Resource string `json:"resource"`
	// Directory is where it registers; empty means the kubelet's.
	Directory string `json:"directory"`
	// Variables are those that its containers get.
	Variables map[string]string `json:"variables"`
}

// serveDevicePlugin serves a device plugin on the node scheduled until the attempt ends, and waits
// until the node counts its device.
func serveDevicePlugin(ctx context.Context, p *trial, arguments servedPlugin) (Got, error) {
	resource, endpoint := arguments.Resource, p.attempt.ID+".sock"
	directory := cmp.Or(arguments.Directory, atKubelet)
	plugin := fakeplugin.New(fakeplugin.Device("d"))
	if arguments.Variables != nil {
		plugin.Answer = func([]string) []*pluginapi.ContainerAllocateResponse {
			return []*pluginapi.ContainerAllocateResponse{{Envs: arguments.Variables}}
		}
	}
	if err := p.node(scheduled).Sandbox().Do(func() error {
		_, err := plugin.Serve(path.Join(directory, endpoint))
		return err
	}); err != nil {
		return Got{}, err
	}
	p.undo = append(p.undo, func(context.Context) error {
		plugin.Stop()
		return nil
	})
	if got, err := p.registerAs(ctx, scheduled, directory, endpoint, resource); err != nil || got.Outcome != "" {
		return got, err
	}
	return Got{}, await.Until(ctx, "the node to count "+resource, func(ctx context.Context) (bool, error) {
		now, err := p.admin.CoreV1().Nodes().Get(ctx, p.node(scheduled).Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		name := corev1.ResourceName(resource)
		counted := now.Status.Allocatable[name]
		return !counted.IsZero() && (directory == atKubelet || names(now, name)), nil
	})
}

// startDRADriver starts a DRA driver of the vendor's on the node scheduled until the attempt ends.
// Its device has the attempt's ID. Without a name and a kind of devices, it is a GPU that we
// allocate, and the driver has a name of its own.
func startDRADriver(ctx context.Context, p *trial, arguments struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}) (Got, error) {
	driver := dradriver.Driver{
		Name: cmp.Or(arguments.Name, p.attempt.ID+".attack.example"), Kind: cmp.Or(arguments.Kind, "nvidia.com/gpu"),
		Device: p.attempt.ID,
	}
	stop, err := dradriver.Start(ctx, p.admin, p.node(scheduled), driver)
	if err == nil {
		p.undo = append(p.undo, stop)
	}
	return Got{}, err
}

// removeAnnotation creates the attempt's pod, and removes its annotation for CDI devices when its
// container was refused for it. The sandbox has the annotation still, and containerd gives that to
// NRI plugins. It succeeds if the container runs.
func removeAnnotation(ctx context.Context, p *trial, _ nothing) (Got, error) {
	if _, err := createPod(ctx, p, nothing{}); err != nil {
		return Got{}, err
	}
	if _, got, err := p.awaitState(ctx, p.created); err != nil || got.Outcome != RefusedByNode {
		return got, err
	}
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	const patch = `{"metadata":{"annotations":{"nvidia.cdi.k8s.io/pod":null}}}`
	if err := mergePatch(ctx, client, p.created, []byte(patch)); err != nil {
		return Got{}, err
	}
	refusedOrRuns := func(now *corev1.Pod) bool {
		return kube.Ready(now) || strings.Contains(stateOf(now).Words, "of the pod's sandbox")
	}
	now, err := p.admin.AwaitPod(ctx, p.created, "to run, or to be refused for its sandbox", refusedOrRuns)
	if err != nil {
		return Got{}, err
	}
	return p.settle(ctx, now)
}

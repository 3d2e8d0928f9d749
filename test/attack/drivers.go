// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/dradriver"
	"github.com/kubedevice/kubedevice/test/kube"
)

// serveDevicePlugin serves a device plugin that is registered with the kubelet of the node
// scheduled, until the attempt ends, and waits until the node counts its device.
func serveDevicePlugin(ctx context.Context, p *trial, arguments struct {
	Resource string `json:"resource"`
}) (Got, error) {
	resource, endpoint := arguments.Resource, p.attempt.ID+".sock"
	plugin := fakeplugin.New(fakeplugin.Device("d"))
	if err := p.node(scheduled).Sandbox().Do(func() error {
		_, err := plugin.Serve(atKubelet + "/" + endpoint)
		return err
	}); err != nil {
		return Got{}, err
	}
	p.undo = append(p.undo, func(context.Context) error {
		plugin.Stop()
		return nil
	})
	if got, err := p.registerAs(ctx, scheduled, atKubelet, endpoint, resource); err != nil || got.Outcome != "" {
		return got, err
	}
	return Got{}, await.Until(ctx, "the node to count "+resource, func(ctx context.Context) (bool, error) {
		now, err := p.admin.CoreV1().Nodes().Get(ctx, p.node(scheduled).Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		counted := now.Status.Allocatable[corev1.ResourceName(resource)]
		return !counted.IsZero(), nil
	})
}

// startDRADriver starts the vendor's DRA driver on the node scheduled until the attempt ends. Its
// device, which has the attempt's ID, is a GPU that we allocate.
func startDRADriver(ctx context.Context, p *trial, _ nothing) (Got, error) {
	driver := dradriver.Driver{Name: p.attempt.ID + ".attack.example", Kind: "nvidia.com/gpu", Device: p.attempt.ID}
	stop, err := dradriver.Start(ctx, p.admin, p.node(scheduled), driver)
	if err == nil {
		p.undo = append(p.undo, stop)
	}
	return Got{}, err
}

// removeAnnotation creates the attempt's pod, and removes its annotation for CDI devices when its
// container was refused for it. The sandbox has the annotation still, but containerd does not read
// that. It succeeds if the container runs at once, or can open the attempt's device.
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
	const patch = `{"metadata":{"annotations":{"cdi.k8s.io/mine":null}}}`
	if err := mergePatch(ctx, client, p.created, []byte(patch)); err != nil {
		return Got{}, err
	}
	now, err := p.admin.AwaitPod(ctx, p.created, "to run without the annotation", kube.Ready)
	if err != nil {
		return Got{}, err
	}
	return p.settle(ctx, now)
}

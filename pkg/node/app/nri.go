// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/nrifront"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

// nriParts are what a node has in ModeNRI alone.
type nriParts struct {
	view    *nrifront.View
	devices *nrifront.Devices
	front   *nrifront.Front
}

// newNRIFront makes the front that takes the proxy's place.
func (n *node) newNRIFront(ctx context.Context) *nrifront.Front {
	a := n.admission()
	n.nri.devices = nrifront.NewDevices(ctx, a.Devices)
	a.Devices = n.nri.devices
	ahead := *a
	a.Pods = nrifront.NewPods(a.Pods)
	n.nri.front = nrifront.New(ctx, nrifront.Options{
		Admission: nriAdmission{a, &ahead}, Devices: n.nri.devices, View: n.nri.view, Since: n.record.KeySince,
		Source: nrilist.New(n.upstream), Ender: nrifront.CRI(n.upstream),
		Warn: func(pod admission.Pod, message string) {
			n.events.warnOfEnded(&corev1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
			}, message)
		},
	})
	return n.nri.front
}

// nriAdmission is an admission for the front, whose claims, for which nobody waits, may wait for a
// pod as long as they want.
type nriAdmission struct {
	*admission.Admission
	ahead *admission.Admission
}

// Claims implements nrifront.Admission.
func (a nriAdmission) Claims(ctx context.Context, pod admission.Pod) ([]plugins.Claim, error) {
	return a.ahead.Claims(ctx, pod)
}

func (p *nriParts) close() {
	p.front.Close()
	p.devices.Close()
}

// nriListable returns a function that returns why the runtime behind conn cannot send its list to
// NRI plugins: none connects then, see nri.Options.Listable.
func nriListable(conn grpc.ClientConnInterface) func(context.Context) error {
	source := nrilist.New(conn)
	return func(ctx context.Context) error {
		list, err := source.List(ctx)
		if err != nil {
			return err
		}
		return list.Check()
	}
}

// nriSettings reads what the runtime's configuration says of its default validator.
func (n *node) nriSettings(ctx context.Context) (nri.Settings, error) {
	return validatorSettings(ctx, n.options.UpstreamEndpoint)
}

// validatorSettings returns what the configuration of the runtime behind an endpoint says of its
// default validator.
func validatorSettings(ctx context.Context, endpoint string) (nri.Settings, error) {
	path, err := criproxy.SocketPath(endpoint)
	if err != nil {
		return nri.Settings{}, err
	}
	return nri.NewMachine().Settings(ctx, path)
}

// register keeps kubecri registered with NRI. In ModeNRI it waits until this process has the
// checkpoint to itself: a kubecri before it may still decide about containers.
func (n *node) register(ctx context.Context) {
	if n.nri != nil {
		select {
		case <-n.record.Opened():
		case <-ctx.Done():
			return
		}
	}
	n.registration.Run(ctx)
}

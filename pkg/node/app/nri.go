// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/nrifrontend"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

// nriParts are what a node has in ModeNRI alone.
type nriParts struct {
	view     *nrifrontend.View
	devices  *nrifrontend.Devices
	frontend *nrifrontend.Frontend
}

// newNRIFrontend makes the frontend that takes the proxy's place.
func (n *node) newNRIFrontend(ctx context.Context) *nrifrontend.Frontend {
	a := n.admission()
	n.nri.devices = nrifrontend.NewDevices(ctx, a.Devices)
	a.Devices = n.nri.devices
	ahead := *a
	a.Pods = nrifrontend.NewPods(a.Pods)
	n.nri.frontend = nrifrontend.New(ctx, nrifrontend.Options{
		Admission: nriAdmission{a, &ahead}, Devices: n.nri.devices, View: n.nri.view, Key: n.checkpoint,
		Source: nrilist.New(n.upstream), Ender: nrifrontend.CRI(n.upstream),
		Events: n.events,
	})
	return n.nri.frontend
}

// nriAdmission is an admission for the frontend, whose claims, for which no call waits, may wait
// for a pod as long as they want.
type nriAdmission struct {
	*admission.Admission
	ahead *admission.Admission
}

// Claims implements nrifront.Admission.
func (a nriAdmission) Claims(ctx context.Context, pod admission.Pod) ([]plugins.Claim, error) {
	return a.ahead.Claims(ctx, pod)
}

func (p *nriParts) close() {
	p.frontend.Close()
	p.devices.Close()
}

// runtimeList is the list of containers of the runtime behind a connection.
type runtimeList struct{ source nrifrontend.Source }

var _ nri.ListChecker = runtimeList{}

// Check implements nri.ListChecker.
func (l runtimeList) Check(ctx context.Context) error {
	list, err := l.source.List(ctx)
	if err != nil {
		return err
	}
	return list.Check()
}

// validatorOf reads the settings of the default validator of the runtime behind an endpoint.
type validatorOf string

var _ nri.SettingsReader = validatorOf("")

// Settings implements nri.SettingsReader.
func (v validatorOf) Settings(ctx context.Context) (nri.Settings, error) {
	return validatorSettings(ctx, string(v))
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
		case <-n.checkpoint.Opened():
		case <-ctx.Done():
			return
		}
	}
	n.registration.Run(ctx)
}

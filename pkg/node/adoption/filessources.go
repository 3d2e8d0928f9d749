// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Sources implements [plugins.Transport].
func (f *Files) Sources() (now []plugins.Source, loaded bool, changed <-chan struct{}) {
	sources, loaded, _ := f.options.Files.Sources()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, source := range sources {
		if state := f.withheld(source.State()); state != nil {
			source = withheldSource{source, *state, f.isKubelets(*source.State().Info)}
		}
		now = append(now, source)
	}
	return now, loaded, f.changed
}

// withheld returns the state of a source that must not offer its devices now, or nil. The caller
// holds mu.
func (f *Files) withheld(state plugins.State) *plugins.State {
	if state.Info == nil || len(state.Info.KubeCap) == 0 {
		return nil
	}
	if !f.evaluated {
		return &plugins.State{Err: state.Err}
	}
	blocked := map[types.ResourceName]error{}
	for name := range state.Info.KubeCap {
		if err := f.blocked[name]; err != nil {
			blocked[name] = err
		}
	}
	if len(blocked) == 0 {
		return nil
	}
	return &plugins.State{
		Reported: state.Reported, Err: state.Err, Withheld: blocked, Remark: state.Remark,
	}
}

// Late implements [plugins.Transport]: a container that holds a device which its plugin file must
// not offer now waits.
func (f *Files) Late(device types.ResourceName) (label string, late bool) {
	sources, _, _ := f.options.Files.Sources()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, source := range sources {
		state := source.State()
		if f.withheld(state) == nil {
			continue
		}
		for name := range state.Info.Capacity {
			if grants.SameResource(name, device) {
				return source.Label(), true
			}
		}
	}
	return "", false
}

// isKubelets reports whether the kubelet has devices of one of the resources. The caller holds mu.
func (f *Files) isKubelets(info types.NodeInfo) bool {
	for name := range info.KubeCap {
		if c := f.claims[name]; c != nil && c.kubelets {
			return true
		}
	}
	return false
}

// withheldSource is a source whose devices are not offered.
type withheldSource struct {
	plugins.Source
	state    plugins.State
	kubelets bool // the kubelet has devices of its resources
}

// State implements [plugins.Source].
func (s withheldSource) State() plugins.State { return s.state }

// Firewall implements [plugins.Source]: what the kubelet gives containers is not taken away.
func (s withheldSource) Firewall(holds bool) device.Firewall {
	if s.kubelets {
		return device.Firewall{}
	}
	return s.Source.Firewall(holds)
}

// Allocate implements [plugins.Source].
func (s withheldSource) Allocate(context.Context, plugins.Claim) (inject.Addition, error) {
	return inject.Addition{}, errors.Join(s.state.Err, s.state.ErrWithheld())
}

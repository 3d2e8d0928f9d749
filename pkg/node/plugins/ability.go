// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// Observe is told of each call into a plugin when its caller has the outcome.
type Observe func(plugin, call string, took time.Duration, err error)

// adopt asks a loaded plugin, once, for its optional abilities.
func adopt(
	ctx context.Context, loaded pluginload.Loaded[device.Device], timing Timing, observe Observe,
) (*plugin, error) {
	policy := plugincall.Policy{
		Kind: "device plugin", Clock: clock.RealClock{}, LimitsQueue: true, Observe: observe,
	}
	// Until it says that it is safe for concurrent use it is not.
	asking := plugincall.New(policy, loaded.Name, false)
	concurrent := false
	if ability, ok := loaded.Plugin.(device.ConcurrentSafe); ok {
		var err error
		concurrent, err = plugincall.Do(ctx, asking, plugincall.Call{Method: "ConcurrentSafe", Limit: timing.Update},
			func() (bool, error) { return ability.ConcurrentSafe(), nil })
		if err != nil {
			return nil, err
		}
	}
	var deny map[string]string
	if ability, ok := loaded.Plugin.(device.Isolator); ok {
		var err error
		deny, err = plugincall.Do(ctx, asking, plugincall.Call{Method: "DenyEnvs", Limit: timing.Update},
			func() (map[string]string, error) { return maps.Clone(ability.DenyEnvs()), nil })
		if err != nil {
			return nil, err
		}
		for name, value := range deny {
			if err := inject.CheckEnv(name, value); err != nil {
				return nil, fmt.Errorf("device plugin %q: DenyEnvs: %w", loaded.Name, err)
			}
		}
	}
	return &plugin{
		name: loaded.Name, device: loaded.Plugin, deny: deny, err: errNotStarted,
		caller: plugincall.New(policy, loaded.Name, concurrent),
	}, nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"maps"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// adopt asks a loaded plugin, once, for its optional abilities.
func adopt(ctx context.Context, loaded pluginload.Loaded[device.Device], timing Timing, observe Observe) (*plugin, error) {
	// Until it says that it is safe for concurrent use it is not.
	asking := newLine(loaded.Name, false, observe)
	concurrent := false
	if ability, ok := loaded.Plugin.(device.ConcurrentSafe); ok {
		var err error
		if concurrent, err = through(ctx, asking, "ConcurrentSafe", timing.Update, func() (bool, error) { return ability.ConcurrentSafe(), nil }); err != nil {
			return nil, err
		}
	}
	var deny map[string]string
	if ability, ok := loaded.Plugin.(device.Isolator); ok {
		var err error
		if deny, err = through(ctx, asking, "DenyEnvs", timing.Update, func() (map[string]string, error) { return maps.Clone(ability.DenyEnvs()), nil }); err != nil {
			return nil, err
		}
		for name, value := range deny {
			if err := inject.CheckEnv(name, value); err != nil {
				return nil, fmt.Errorf("device plugin %q: DenyEnvs: %w", loaded.Name, err)
			}
		}
	}
	return &plugin{name: loaded.Name, device: loaded.Plugin, deny: deny, err: errNotStarted, line: newLine(loaded.Name, concurrent, observe)}, nil
}

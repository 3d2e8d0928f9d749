// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// checkName is the name of the plugin that Check registers.
const checkName = deviceinfo.NRIPlugin + "-check"

// Check registers a plugin with the runtime at the socket, which leaves at once, and returns the
// runtime's name and version. An error says why the runtime would not register one with a Handler.
// That includes an error of list: then Check does not connect.
func Check(
	ctx context.Context, socket string, list ListChecker,
) (runtime string, err error) {
	if err := list.Check(ctx); err != nil {
		return "", err
	}
	c := &checkPlugin{presencePlugin: presencePlugin{newMember()}}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	registered := false
	err = connect(ctx, socket, checkName, c, func() {
		registered = true
		leave()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.refused != nil:
		return c.runtime, c.refused
	case registered:
		return c.runtime, nil
	}
	return c.runtime, cmp.Or(err, errors.New("the runtime did not register the NRI plugin "+checkName))
}

// checkPlugin is there, and remembers which runtime has registered it.
type checkPlugin struct {
	presencePlugin

	mu      sync.Mutex
	runtime string
	refused error
}

// Configure implements stub.ConfigureInterface.
func (c *checkPlugin) Configure(ctx context.Context, config, runtime, version string) (api.EventMask, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runtime, c.refused = runtime+" "+version, checkRuntime(runtime, version)
	if c.refused != nil {
		return 0, c.refused
	}
	return c.member.Configure(ctx, config, runtime, version)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	qat types.ResourceName = "intel.com/qat"
	gpu types.ResourceName = "nvidia.com/gpu"
)

// patience is how long a condition may take on a slow, busy machine.
const patience = 30 * time.Second

var dev, unhealthy = fakeplugin.Device, fakeplugin.Unhealthy

// testPlugin is a plugin at a socket.
type testPlugin struct {
	*fakeplugin.Plugin
	socket string
}

// startPlugin serves a plugin at the socket until the test ends or it is stopped.
func startPlugin(t *testing.T, socket string, devices ...*pluginapi.Device) *testPlugin {
	t.Helper()
	p := &testPlugin{fakeplugin.New(devices...), socket}
	p.serve(t)
	return p
}

func (p *testPlugin) serve(t *testing.T) {
	t.Helper()
	if _, err := p.Serve(p.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
}

// register calls Register as a plugin does, with its base name as endpoint.
func (p *testPlugin) register(t *testing.T, m *Manager, resource types.ResourceName) error {
	t.Helper()
	return register(t, m, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: string(resource),
	})
}

func register(t *testing.T, m *Manager, request *pluginapi.RegisterRequest) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return fakeplugin.Send(ctx, m.socket(), request)
}

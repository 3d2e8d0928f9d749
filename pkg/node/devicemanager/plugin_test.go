// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	qat types.ResourceName = "intel.com/qat"
	gpu types.ResourceName = "nvidia.com/gpu"
)

// patience is how long a condition may take on a slow, busy machine.
const patience = 30 * time.Second

// fakePlugin is a device plugin that speaks the real API over a real socket.
type fakePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	registrationapi.UnimplementedRegistrationServer

	socket   string
	preStart bool
	info     *registrationapi.PluginInfo
	server   *grpc.Server
	outcomes chan *registrationapi.RegistrationStatus

	mu        sync.Mutex
	list      []*pluginapi.Device
	changed   chan struct{}
	failure   error // of the next calls of Allocate and PreStartContainer
	allocated [][]string
	prepared  [][]string
}

func dev(id string, numa ...int64) *pluginapi.Device {
	d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	if len(numa) > 0 {
		d.Topology = &pluginapi.TopologyInfo{}
		for _, node := range numa {
			d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: node})
		}
	}
	return d
}

func sick(id string, numa ...int64) *pluginapi.Device {
	d := dev(id, numa...)
	d.Health = pluginapi.Unhealthy
	return d
}

// startPlugin serves a plugin at the socket until the test ends or it is killed.
func startPlugin(t *testing.T, socket string, devices ...*pluginapi.Device) *fakePlugin {
	t.Helper()
	p := &fakePlugin{socket: socket, list: devices, changed: make(chan struct{}), outcomes: make(chan *registrationapi.RegistrationStatus, 100)}
	p.serve(t)
	return p
}

func (p *fakePlugin) serve(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(p.socket); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p)
	registrationapi.RegisterRegistrationServer(p.server, p)
	go p.server.Serve(listener)
	t.Cleanup(p.server.Stop)
}

// kill ends the plugin as a crash does, but for its socket.
func (p *fakePlugin) kill() { p.server.Stop() }

// say replaces the list.
func (p *fakePlugin) say(devices ...*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *fakePlugin) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
}

func (p *fakePlugin) calls() (allocated, prepared [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allocated), slices.Clone(p.prepared)
}

func (p *fakePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: p.preStart}, nil
}

func (p *fakePlugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		list, changed := p.list, p.changed
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *fakePlugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		p.allocated = append(p.allocated, container.DevicesIds)
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, p.failure
}

func (p *fakePlugin) PreStartContainer(_ context.Context, request *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepared = append(p.prepared, request.DevicesIds)
	return &pluginapi.PreStartContainerResponse{}, p.failure
}

func (p *fakePlugin) GetInfo(context.Context, *registrationapi.InfoRequest) (*registrationapi.PluginInfo, error) {
	if p.info == nil {
		return nil, errors.New("no plugin of the registry")
	}
	return p.info, nil
}

func (p *fakePlugin) NotifyRegistrationStatus(_ context.Context, outcome *registrationapi.RegistrationStatus) (*registrationapi.RegistrationStatusResponse, error) {
	p.outcomes <- outcome
	return &registrationapi.RegistrationStatusResponse{}, nil
}

// register calls Register as a plugin does, with its base name as endpoint.
func (p *fakePlugin) register(t *testing.T, h *Manager, resource types.ResourceName) error {
	t.Helper()
	return register(t, h, &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: string(resource)})
}

func register(t *testing.T, h *Manager, request *pluginapi.RegisterRequest) error {
	t.Helper()
	conn, err := dial(filepath.Join(h.options.Dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, request, grpc.WaitForReady(true))
	return err
}

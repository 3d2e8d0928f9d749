// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeplugin is a kubelet device plugin for tests. It speaks the real API (v1beta1) over a
// real socket.
package fakeplugin

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Plugin is a device plugin. Its fields are set before it is called; its methods are safe for
// concurrent use.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	registrationapi.UnimplementedRegistrationServer

	// Env is the environment variable in which containers get the IDs of their devices.
	Env string
	// PreStart says that the plugin requires PreStartContainer.
	PreStart bool
	// Info is the answer to GetInfo; nil for a plugin that only registers with Register.
	Info *registrationapi.PluginInfo
	// OnAllocate, if set, is called with the IDs of each container, and may block. Allocate returns
	// its error.
	OnAllocate func(ids []string) error
	// Answer, if set, returns what Allocate answers for a container with these IDs, nil for nothing
	// at all; without, it is Env.
	Answer func(ids []string) []*pluginapi.ContainerAllocateResponse
	// OptionsError, if set, is the error of GetDevicePluginOptions, and OptionsDelay how long that
	// takes.
	OptionsError error
	OptionsDelay time.Duration
	// Preferred, if set, are the IDs that GetPreferredAllocation chooses, as many as are wanted.
	Preferred []string
	// Outcomes gets what NotifyRegistrationStatus is called with.
	Outcomes chan *registrationapi.RegistrationStatus

	server *grpc.Server

	mu         sync.Mutex
	devices    []*pluginapi.Device
	changed    chan struct{} // closed with every change of devices
	err        error         // of the next calls of Allocate and PreStartContainer
	allocated  [][]string
	preStarted [][]string
}

// New returns a plugin that lists these devices.
func New(devices ...*pluginapi.Device) *Plugin {
	return &Plugin{
		Env: "DEVICES", Outcomes: make(chan *registrationapi.RegistrationStatus, 100),
		devices: devices, changed: make(chan struct{}),
	}
}

// Device returns a healthy device that belongs to these NUMA nodes; without any it has no topology.
func Device(id string, numa ...int64) *pluginapi.Device {
	d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	if len(numa) > 0 {
		d.Topology = &pluginapi.TopologyInfo{}
		for _, node := range numa {
			d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: node})
		}
	}
	return d
}

// Unhealthy returns an unhealthy device.
func Unhealthy(id string, numa ...int64) *pluginapi.Device {
	d := Device(id, numa...)
	d.Health = pluginapi.Unhealthy
	return d
}

// Serve serves the plugin at a socket, in place of what is there, until Stop. The channel gets the
// error with which serving ends.
func (p *Plugin) Serve(socket string) (ended <-chan error, err error) {
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p)
	registrationapi.RegisterRegistrationServer(p.server, p)
	serving := make(chan error, 1)
	go func() { serving <- p.server.Serve(listener) }()
	return serving, nil
}

// Stop ends all calls, as a crash does. A plugin that was not served has none.
func (p *Plugin) Stop() {
	if p.server != nil {
		p.server.Stop()
	}
}

// Register registers the plugin at an endpoint, the base name of its socket, with the kubelet's
// socket.
func Register(ctx context.Context, kubelet, endpoint string, resource types.ResourceName) error {
	return Send(ctx, kubelet, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: string(resource),
	})
}

// Send sends a request to the kubelet's socket, as soon as that is there.
func Send(ctx context.Context, kubelet string, request *pluginapi.RegisterRequest) error {
	conn, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, request, grpc.WaitForReady(true))
	return err
}

// SetDevices replaces the list of devices.
func (p *Plugin) SetDevices(devices ...*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

// SetError makes Allocate and PreStartContainer return an error from now on, or none.
func (p *Plugin) SetError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// Calls returns the IDs of each container that Allocate and PreStartContainer were called for.
func (p *Plugin) Calls() (allocated, preStarted [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allocated), slices.Clone(p.preStarted)
}

// GetDevicePluginOptions implements the API.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	time.Sleep(p.OptionsDelay)
	return &pluginapi.DevicePluginOptions{
		PreStartRequired: p.PreStart, GetPreferredAllocationAvailable: p.Preferred != nil,
	}, p.OptionsError
}

// GetPreferredAllocation implements the API.
func (p *Plugin) GetPreferredAllocation(
	_ context.Context, request *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.GetContainerRequests() {
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: p.Preferred[:container.GetAllocationSize()]})
	}
	return response, nil
}

// ListAndWatch implements the API.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate implements the API.
func (p *Plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		ids := container.GetDevicesIds()
		p.note(ids)
		if p.OnAllocate != nil {
			if err := p.OnAllocate(ids); err != nil {
				return nil, err
			}
		}
		if p.Answer != nil {
			response.ContainerResponses = append(response.ContainerResponses, p.Answer(ids)...)
			continue
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{p.Env: strings.Join(ids, ",")},
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return response, p.err
}

// note records a container that Allocate is called for.
func (p *Plugin) note(ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allocated = append(p.allocated, ids)
}

// PreStartContainer implements the API.
func (p *Plugin) PreStartContainer(
	_ context.Context, request *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.preStarted = append(p.preStarted, request.GetDevicesIds())
	return &pluginapi.PreStartContainerResponse{}, p.err
}

// GetInfo implements the API of the plugins registry.
func (p *Plugin) GetInfo(context.Context, *registrationapi.InfoRequest) (*registrationapi.PluginInfo, error) {
	if p.Info == nil {
		return nil, errors.New("no plugin of the registry")
	}
	return p.Info, nil
}

// NotifyRegistrationStatus implements the API of the plugins registry.
func (p *Plugin) NotifyRegistrationStatus(
	_ context.Context, outcome *registrationapi.RegistrationStatus,
) (*registrationapi.RegistrationStatusResponse, error) {
	p.Outcomes <- outcome
	return &registrationapi.RegistrationStatusResponse{}, nil
}

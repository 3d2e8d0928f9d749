// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The plugin is a device plugin for the kubelet, or for who serves the kubelet's directory. Its
// devices are those of a file, which it reads again on SIGHUP. It keeps a journal
// of the devices that it allocated.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func main() {
	p := &plugin{changed: make(chan struct{})}
	flag.StringVar(&p.resource, "resource", "", "the resource to register")
	flag.StringVar(&p.devices, "devices", "", "the file with the devices, a list of the API's as JSON")
	flag.StringVar(&p.journal, "journal", "",
		"the file that takes a line with the IDs for each container that is given devices")
	flag.Parse()
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	resource, devices, journal string

	mu      sync.Mutex
	list    []*pluginapi.Device
	changed chan struct{} // closed when there is another list
}

func (p *plugin) run() error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	if err := p.read(); err != nil {
		return err
	}
	socket := p.name() + ".sock"
	if err := os.RemoveAll(pluginapi.DevicePluginPath + socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", pluginapi.DevicePluginPath+socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	request := &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: socket, ResourceName: p.resource}
	if _, err := pluginapi.NewRegistrationClient(conn).Register(context.Background(), request,
		grpc.WaitForReady(true)); err != nil {
		return err
	}
	for {
		select {
		case <-reload:
			if err := p.read(); err != nil {
				return err
			}
		case err := <-ended:
			return err
		}
	}
}

// name is what the plugin's devices are called: gpu for vendor.example/gpu.
func (p *plugin) name() string { return path.Base(p.resource) }

func (p *plugin) read() error {
	content, err := os.ReadFile(p.devices)
	if err != nil {
		return err
	}
	var list []*pluginapi.Device
	if err := json.Unmarshal(content, &list); err != nil {
		return fmt.Errorf("%s: %w", p.devices, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = list
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *pluginapi.Empty,
	stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
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

// Allocate names the container's devices in an environment variable that is called like them: GPU
// for vendor.example/gpu.
func (p *plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	journal, err := os.OpenFile(p.journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer journal.Close()
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := strings.Join(container.DevicesIds, ",")
		if _, err := fmt.Fprintln(journal, ids); err != nil {
			return nil, err
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{strings.ToUpper(p.name()): ids},
		})
	}
	return response, nil
}

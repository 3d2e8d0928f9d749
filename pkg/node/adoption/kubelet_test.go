// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// registry is the part of a kubelet with which plugins register, in a directory of its own.
type registry struct {
	pluginapi.UnimplementedRegistrationServer
	directory string
	server    *grpc.Server
	listening sync.WaitGroup

	mu            sync.Mutex
	plugins       map[string]*pluginAtKubelet // the last one of each resource
	registrations int
	leaves        bool // each plugin as soon as it has listed its devices
}

// pluginAtKubelet is what the kubelet has of a plugin.
type pluginAtKubelet struct {
	conn    *grpc.ClientConn
	healthy map[string]bool // by ID
	gone    bool
}

// startRegistrar serves a kubelet that knows these resources, and has allocated these devices.
func startRegistrar(t *testing.T, directory string, known []types.ResourceName, entries ...checkpointEntry) *registry {
	t.Helper()
	k := &registry{directory: directory, plugins: map[string]*pluginAtKubelet{}}
	k.remember(t, known, entries...)
	k.start(t)
	t.Cleanup(k.stop)
	return k
}

// checkpointEntry is an entry of the kubelet's checkpoint.
type checkpointEntry struct {
	PodUID, ContainerName string
	ResourceName          types.ResourceName
	DeviceIDs             map[string][]string
	AllocResp             []byte
}

// remember writes the kubelet's checkpoint.
func (k *registry) remember(t *testing.T, known []types.ResourceName, entries ...checkpointEntry) {
	t.Helper()
	registered := map[types.ResourceName][]string{}
	for _, name := range known {
		registered[name] = nil
	}
	content, err := json.Marshal(map[string]any{
		"Data": map[string]any{"PodDeviceEntries": entries, "RegisteredDevices": registered},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.directory, kubeletstate.CheckpointName), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// start removes what is in the directory, as the kubelet does, and takes registrations.
func (k *registry) start(t *testing.T) {
	t.Helper()
	stale, err := filepath.Glob(filepath.Join(k.directory, "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stale {
		os.Remove(path)
	}
	listener, err := net.Listen("unix", filepath.Join(k.directory, socketName))
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer(grpc.WaitForHandlers(true))
	pluginapi.RegisterRegistrationServer(k.server, k)
	go k.server.Serve(listener) //nolint:errcheck // it ends with Stop
}

// stop ends the kubelet: it leaves all plugins.
func (k *registry) stop() {
	k.server.Stop()
	k.mu.Lock()
	for name, p := range k.plugins {
		p.conn.Close()
		delete(k.plugins, name)
	}
	k.mu.Unlock()
	k.listening.Wait()
}

// Register implements the API.
func (k *registry) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := devicemanager.Dial(filepath.Join(k.directory, request.GetEndpoint()))
	if err != nil {
		return nil, err
	}
	stream, err := pluginapi.NewDevicePluginClient(conn).ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	p := &pluginAtKubelet{conn: conn}
	k.mu.Lock()
	k.plugins[request.GetResourceName()] = p
	k.registrations++
	k.mu.Unlock()
	k.listening.Go(func() {
		for {
			list, err := stream.Recv()
			k.mu.Lock()
			if err != nil {
				p.gone = true
				k.mu.Unlock()
				conn.Close()
				return
			}
			p.healthy = map[string]bool{}
			for _, d := range list.GetDevices() {
				p.healthy[d.GetID()] = d.GetHealth() == pluginapi.Healthy
			}
			if k.leaves {
				conn.Close()
			}
			k.mu.Unlock()
		}
	})
	return &pluginapi.Empty{}, nil
}

// has waits until the kubelet has these devices of a resource, each with its health, or with nil
// has no plugin of it.
func (k *registry) has(t *testing.T, resource types.ResourceName, want map[string]bool) {
	t.Helper()
	eventually(t, func() error {
		if diff := cmp.Diff(want, k.devices(resource)); diff != "" {
			return fmt.Errorf("%s at the kubelet (-want +got):\n%s", resource, diff)
		}
		return nil
	})
}

func (k *registry) devices(resource types.ResourceName) map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.plugins[string(resource)]; p != nil && !p.gone {
		return p.healthy
	}
	return nil
}

// allocate calls the plugin of a resource as the kubelet does, and returns what it keeps.
func (k *registry) allocate(t *testing.T, resource types.ResourceName, id string) []byte {
	t.Helper()
	k.mu.Lock()
	conn := k.plugins[string(resource)].conn
	k.mu.Unlock()
	response, err := pluginapi.NewDevicePluginClient(conn).Allocate(t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{id}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := proto.Marshal(response.GetContainerResponses()[0])
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

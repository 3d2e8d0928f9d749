// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
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
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var dev, unhealthy = fakeplugin.Device, fakeplugin.Unhealthy

// host is one of the two that serve plugins: the kubelet of one node, or kubecri of the other.
type host struct {
	name      string
	node      *cluster.Node
	agent     podresourcesapi.PodResourcesListerClient
	namespace string

	// plugins and registry are the directories of plugins, as the machine sees them, by a path that
	// is short enough for sockets.
	plugins, registry string
}

// newHost returns the host whose directories are in a directory of /var/lib.
func newHost(t *testing.T, name string, node *cluster.Node, directory, podResources, namespace string) *host {
	t.Helper()
	open := func(name string) string {
		path := filepath.Join(node.Var(), "lib", directory, name)
		if err := os.MkdirAll(path, 0o750); err != nil {
			t.Fatal(err)
		}
		opened, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { opened.Close() })
		return fmt.Sprintf("/proc/self/fd/%d", opened.Fd())
	}
	return &host{
		name: name, node: node, agent: clustertest.NewAgent(t, node, podResources), namespace: namespace,
		plugins: open("device-plugins"), registry: open("plugins_registry"),
	}
}

// side is one row of the table at one host.
type side struct {
	*host
	ctx      context.Context
	row      string // short, for names of resources, sockets and pods
	resource types.ResourceName

	mu      sync.Mutex
	running []*plugin
	pods    int
}

// plugin is a scripted plugin at a socket.
type plugin struct {
	*fakeplugin.Plugin
	side   *side
	socket string
}

// offers returns a plugin of the row that lists these devices, at a socket where plugins register.
// It is not registered.
func (s *side) offers(devices ...*pluginapi.Device) *plugin {
	return s.at(filepath.Join(s.plugins, s.row+".sock"), devices...)
}

// at returns a plugin at a socket.
func (s *side) at(socket string, devices ...*pluginapi.Device) *plugin {
	p := &plugin{Plugin: fakeplugin.New(devices...), side: s, socket: socket}
	p.Env = "DIFF"
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, p)
	return p
}

// serve serves the plugin, and returns itself.
func (p *plugin) serve() *plugin {
	if err := os.MkdirAll(filepath.Dir(p.socket), 0o750); err != nil {
		panic(outcome("its directory cannot be made: " + err.Error()))
	}
	if _, err := p.Serve(p.socket); err != nil {
		panic(outcome("it cannot serve: " + err.Error()))
	}
	return p
}

// outcome is what a row that cannot go on panics with.
type outcome string

// register registers the plugin for the row's resource, and returns itself.
func (p *plugin) register() *plugin {
	if said := p.side.send(p.request()); said != "registered" {
		panic(outcome("it is not registered: " + said))
	}
	return p
}

// request is the request to register the plugin, which a row may change.
func (p *plugin) request() *pluginapi.RegisterRequest {
	return &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: string(p.side.resource),
	}
}

// send calls Register and returns whether the host has registered the plugin.
func (s *side) send(request *pluginapi.RegisterRequest) string {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	if err := fakeplugin.Send(ctx, filepath.Join(s.plugins, "kubelet.sock"), request); err != nil {
		return "refused"
	}
	return "registered"
}

// offersInRegistry serves a plugin at a socket of the registry, which describes itself with the
// endpoint.
func (s *side) offersInRegistry(
	name, endpoint string, devices []*pluginapi.Device, change ...func(*registrationapi.PluginInfo),
) *plugin {
	p := s.at(filepath.Join(s.registry, name), devices...)
	p.Info = &registrationapi.PluginInfo{
		Type: registrationapi.DevicePlugin, Name: string(s.resource), Endpoint: endpoint,
		SupportedVersions: []string{pluginapi.Version},
	}
	for _, c := range change {
		c(p.Info)
	}
	return p.serve()
}

// notified waits until a plugin of the registry was notified, and returns of what.
func (p *plugin) notified() string {
	select {
	case status := <-p.Outcomes:
		if status.GetPluginRegistered() {
			return "registered"
		}
		return "refused"
	case <-time.After(settle):
		return "not notified"
	}
}

// settle is how long a row waits for what it expects before it says what is there instead.
const settle = 10 * time.Second

// offered waits until just these devices of the row's resource are offered, each with its NUMA
// nodes behind @, and returns those that are.
func (s *side) offered(want ...string) string {
	slices.Sort(want)
	text := strings.Join(want, " ")
	got := ""
	deadline := time.Now().Add(settle)
	for time.Now().Before(deadline) && s.ctx.Err() == nil {
		if got = s.now(); got == text {
			return got
		}
		time.Sleep(50 * time.Millisecond)
	}
	return got
}

// stays is offered for a state that is expected to last.
func (s *side) stays(want ...string) string {
	s.offered(want...)
	time.Sleep(2 * time.Second)
	return s.now()
}

// now returns the devices that are offered.
func (s *side) now() string {
	answer, err := s.agent.GetAllocatableResources(s.ctx, &podresourcesapi.AllocatableResourcesRequest{},
		grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return err.Error()
	}
	var devices []string
	for _, d := range answer.GetDevices() {
		if d.GetResourceName() != string(s.resource) {
			continue
		}
		numa := ""
		var nodes []string
		for _, n := range d.GetTopology().GetNodes() {
			nodes = append(nodes, fmt.Sprint(n.GetID()))
		}
		if slices.Sort(nodes); len(nodes) > 0 {
			numa = "@" + strings.Join(nodes, ",")
		}
		for _, id := range d.GetDeviceIds() {
			devices = append(devices, id+numa)
		}
	}
	slices.Sort(devices)
	return strings.Join(slices.Compact(devices), " ")
}

// end stops the row's plugins.
func (s *side) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.running {
		p.Stop()
	}
}

// perform plays a row at the host, and returns its outcome.
func (h *host) perform(ctx context.Context, row string, play func(*side) string) (text string) {
	s := &side{host: h, ctx: ctx, row: row, resource: types.ResourceName("diff.example/" + row)}
	defer s.end()
	defer func() {
		if problem := recover(); problem != nil {
			stopped, known := problem.(outcome)
			if !known {
				panic(problem)
			}
			text = string(stopped)
		}
	}()
	return play(s)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// standInPrefix begins the names of the stand-ins' sockets in the kubelet's directory.
	standInPrefix = "kubecri-"
	// standInRetry is the pause before a stand-in that could not register, or that the kubelet
	// leaves again and again, tries it again.
	standInRetry = 500 * time.Millisecond
	// standInPoll is the pause between two looks for the kubelet while it is away: when it starts,
	// it admits the node's pods again, which fail if no plugin has registered.
	standInPoll = 50 * time.Millisecond
	// standInGrace is how long a stand-in stays at the kubelet when the plugin is gone: a pod that
	// was bound before is admitted, and its container waits for the plugin.
	standInGrace = 30 * time.Second
)

// standIn serves a resource to the kubelet in the place of the plugin, which serves it here.
//
// The kubelet owns a resource for as long as it remembers its plugin, or a pod holds a device that
// it gave. In that time it fails each pod that requests the resource, unless a plugin has
// registered it. So one does: with the devices' IDs and health, and with an Allocate that adds
// nothing but an annotation. The kubelet then counts and publishes the resource by itself. It keeps
// what it gave to containers before, and gives it to them when they start again. Which IDs it picks
// for other containers means nothing.
//
// The list has no topology: the kubelet would refuse pods because of devices that they do not get.
type standIn struct {
	manager  *Manager
	resource types.ResourceName
	stop     context.CancelFunc
}

// startStandIn stands in for the resource until it is stopped or ctx is done. The caller holds mu.
func (m *Manager) startStandIn(ctx context.Context, r *resource) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Resource, r.name)
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logger))
	s := &standIn{manager: m, resource: r.name, stop: stop}
	r.standIn, r.counted, r.conflict = s, true, nil
	m.touch(r)
	m.running.Go(func() { s.run(ctx) })
	if r.session == nil {
		m.expireStandIn(r)
	}
}

// stopStandIn leaves the kubelet. The caller holds mu.
func (r *resource) stopStandIn() {
	if r.standIn != nil {
		r.standIn.stop()
		r.standIn, r.offered = nil, false
	}
}

// expireStandIn leaves the kubelet if the plugin is not back in time. The caller holds mu.
func (m *Manager) expireStandIn(r *resource) {
	var leaving clock.Timer
	leaving = m.options.Clock.AfterFunc(standInGrace, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.leaving == leaving {
			r.leaving = nil
			r.stopStandIn()
		}
	})
	r.leaving = leaving
}

// run is registered with the kubelet until ctx is done.
func (s *standIn) run(ctx context.Context) {
	logged := ""
	var again time.Time // the last registration without a pause
	for {
		s.awaitKubelet(ctx)
		if ctx.Err() != nil || !s.manager.isRemembered(ctx, s) {
			return
		}
		err := s.register(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			// At once: kubelets before 1.37 know one plugin of a resource, and leave that of the
			// next kubecri, too, when the one before it leaves them. Until it is back, pods fail.
			logged = ""
			klog.FromContext(ctx).Info("The kubelet has left; registering in the place of the device plugin again")
			if time.Since(again) > standInRetry {
				again = time.Now()
				continue
			}
		} else if err.Error() != logged {
			logged = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot register in the place of a device plugin; will retry")
		}
		sleep(ctx, standInRetry)
	}
}

// awaitKubelet waits until the kubelet takes registrations.
func (s *standIn) awaitKubelet(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := dialSocket(ctx, filepath.Join(s.manager.options.KubeletDir, socketName))
		if err == nil {
			conn.Close()
			return
		}
		sleep(ctx, standInPoll)
	}
}

// register serves the kubelet until it leaves or ctx is done. Each time the socket has another
// name: the kubelet removes all sockets when it starts, and takes no second plugin at one that it
// is connected to, as while one kubecri takes over from another.
func (s *standIn) register(ctx context.Context) error {
	directory := s.manager.options.KubeletDir
	name := standInPrefix + strings.ToLower(rand.Text()[:10]) + ".sock"
	listener, err := net.Listen("unix", filepath.Join(directory, name))
	if err != nil {
		return fmt.Errorf("socket for the kubelet: %w", err)
	}
	registered := &registration{standIn: s, connected: make(chan struct{}), left: make(chan struct{})}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, registered)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		// Its error is that the server is stopped.
		_ = server.Serve(listener)
	}()
	defer func() {
		server.Stop()
		<-serving
	}()
	if err := s.announce(ctx, filepath.Join(directory, socketName), name); err != nil {
		return err
	}
	limit := time.NewTimer(dialLimit)
	defer limit.Stop()
	select {
	case <-registered.connected:
		klog.FromContext(ctx).Info("Registered with the kubelet in the place of the device plugin",
			logkey.Endpoint, name)
	case <-registered.left:
		return nil
	case <-limit.C:
		return fmt.Errorf("the kubelet has registered %s and not asked for its devices within %v", s.resource,
			dialLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-registered.left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce calls Register of the kubelet.
func (s *standIn) announce(ctx context.Context, kubelet, endpoint string) error {
	conn, err := dial(kubelet)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: string(s.resource),
		Options: &pluginapi.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet at %s: %w", s.resource, kubelet, reason(err))
	}
	return nil
}

// registration is one registration of a stand-in with one life of the kubelet.
type registration struct {
	pluginapi.UnimplementedDevicePluginServer
	*standIn
	listening atomic.Bool
	connected chan struct{} // closed when the kubelet was sent the devices
	left      chan struct{} // closed when it listens no more
}

var _ pluginapi.DevicePluginServer = (*registration)(nil)

// GetDevicePluginOptions implements the API.
func (r *registration) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch implements the API.
func (r *registration) ListAndWatch(
	_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	if !r.listening.CompareAndSwap(false, true) {
		return status.Error(codes.FailedPrecondition, "somebody listens already; register another time")
	}
	defer close(r.left)
	var sent []*pluginapi.Device
	for first := true; ; first = false {
		list, changed := r.manager.kubeletList(r.resource)
		if first || !slices.EqualFunc(list, sent, equalDevices) {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
			sent = list
		}
		if first {
			close(r.connected)
			r.manager.offer(r.resource)
		}
		// No channel reports which devices pods hold.
		timer := time.NewTimer(kubeletInterval)
		select {
		case <-changed:
		case <-timer.C:
		case <-stream.Context().Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

func equalDevices(a, b *pluginapi.Device) bool {
	return a.GetID() == b.GetID() && a.GetHealth() == b.GetHealth()
}

// Allocate implements the API: the scheduler has allocated.
func (r *registration) Allocate(
	_ context.Context, request *pluginapi.AllocateRequest,
) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for range request.GetContainerRequests() {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Annotations: map[string]string{kubeletstate.PlaceholderAnnotation: "true"},
		})
	}
	return response, nil
}

// kubeletList returns the resource's devices for the kubelet, and a channel that is closed when
// they may be others.
//
// An unhealthy device that a pod of the scheduler's holds is healthy there: the kubelet knows the
// pod by another ID, and would have one healthy device too few to admit the next pod. All are
// healthy while the plugin is gone, which is not for long, see standInGrace.
func (m *Manager) kubeletList(name types.ResourceName) (list []*pluginapi.Device, changed <-chan struct{}) {
	granted := m.options.Granted()
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.lookup(name)
	for _, d := range r.devices {
		health := pluginapi.Healthy
		if r.isAllocatable() && !d.healthy && !granted[d.name] {
			health = pluginapi.Unhealthy
		}
		list = append(list, &pluginapi.Device{ID: d.ID, Health: health})
	}
	return list, m.changed
}

// offer lets pods be given the resource's devices: the kubelet has them.
func (m *Manager) offer(name types.ResourceName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.lookup(name); r.standIn != nil && !r.offered {
		r.offered = true
		m.touch(r)
	}
}

// removeStaleSockets removes what stand-ins of processes have left that were killed.
func removeStaleSockets(ctx context.Context, directory string) {
	stale, err := filepath.Glob(filepath.Join(directory, standInPrefix+"*.sock"))
	if err != nil {
		return // cannot be: the pattern is well-formed
	}
	for _, path := range stale {
		if conn, err := dialSocket(ctx, path); err == nil {
			conn.Close() // another kubecri's, which serves still
		} else if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			klog.FromContext(ctx).Error(err, "Cannot remove a stale socket from the kubelet's directory")
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// defaultValidator is the name of the runtime's own validator, which knows the annotation.
const defaultValidator = "default-validator"

// accepting is how long the runtime may take to begin to register a plugin. Then it may take its
// time: it waits for containers that are being stopped, and creates none before the plugin is
// registered. If the plugin left, those that wait would be created without it. It is a variable for
// tests alone.
var accepting = 10 * time.Second

// plugin is what connect serves.
type plugin interface {
	// accepted is closed when the runtime has begun to register the plugin, and ready when it has.
	// In between it waits for requests that run, and lists its containers.
	accepted() <-chan struct{}
	ready() <-chan struct{}
}

// member is what all plugins have in common.
type member struct {
	configuring, syncing sync.Once
	configured, synced   chan struct{}
}

func newMember() *member {
	return &member{configured: make(chan struct{}), synced: make(chan struct{})}
}

func (m *member) accepted() <-chan struct{} { return m.configured }

func (m *member) ready() <-chan struct{} { return m.synced }

// Configure is the first step of a registration. It subscribes to everything that there is a method
// for.
func (m *member) Configure(context.Context, string, string, string) (api.EventMask, error) {
	m.configuring.Do(func() { close(m.configured) })
	return 0, nil
}

// Synchronize is the last step of a registration.
func (m *member) Synchronize(
	context.Context, []*api.PodSandbox, []*api.Container,
) ([]*api.ContainerUpdate, error) {
	m.syncing.Do(func() { close(m.synced) })
	return nil, nil
}

// presencePlugin is there. A plugin must subscribe to something; this is the rarest event that
// every version of NRI knows.
type presencePlugin struct{ *member }

func (presencePlugin) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// requestPlugin is there, and has its requests handled.
type requestPlugin struct {
	*member
	Handler
}

// Synchronize implements stub.SynchronizeInterface.
func (h requestPlugin) Synchronize(
	ctx context.Context, pods []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	if err := h.Handler.Synchronize(ctx, pods, containers); err != nil {
		return nil, err
	}
	return h.member.Synchronize(ctx, pods, containers)
}

// CreateContainer implements stub.CreateContainerInterface.
func (h requestPlugin) CreateContainer(
	ctx context.Context, pod *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjustment, err := h.Handler.CreateContainer(ctx, pod, container)
	if err != nil {
		return nil, nil, err
	}
	boundPod := nribound.Pod{Namespace: pod.GetNamespace(), Name: pod.GetName()}
	if err := nribound.CheckAnswer(boundPod, container.GetName(), adjustment); err != nil {
		return nil, nil, err
	}
	return adjustment, nil, nil
}

// StopContainer implements stub.StopContainerInterface.
func (h requestPlugin) StopContainer(
	ctx context.Context, pod *api.PodSandbox, container *api.Container,
) ([]*api.ContainerUpdate, error) {
	return nil, h.Handler.StopContainer(ctx, pod, container)
}

// ValidateContainerAdjustment accepts every container. A runtime passes over a plugin that does not
// answer, and its own validator counts such a plugin as there: that of a connection that has just
// ended, and one that is late. Of a validator that does not answer, the runtime refuses the
// container. Source: github.com/containerd/nri, pkg/adaptation, CreateContainer of adaptation.go,
// createContainer and ValidateContainerAdjustment of plugin.go.
func (requestPlugin) ValidateContainerAdjustment(context.Context, *api.ValidateContainerAdjustmentRequest) error {
	return nil
}

// Configure implements stub.ConfigureInterface.
func (h requestPlugin) Configure(ctx context.Context, config, runtime, version string) (api.EventMask, error) {
	if err := checkRuntime(runtime, version); err != nil {
		return 0, err
	}
	return h.member.Configure(ctx, config, runtime, version)
}

// validator accepts every container. It reports whether the runtime's own validator saw the first
// one, and leaves.
type validator struct {
	*member
	registration *Registration
	leave        context.CancelFunc

	called atomic.Bool
}

func (v *validator) ValidateContainerAdjustment(
	ctx context.Context, request *api.ValidateContainerAdjustmentRequest,
) error {
	if !v.called.Load() {
		v.registration.setFound(ctx, slices.ContainsFunc(request.GetPlugins(), func(p *api.PluginInstance) bool {
			return p.GetName() == defaultValidator
		}))
		v.called.Store(true)
	}
	return nil
}

// PostCreateContainer follows each creation, also one before the validator was there to be called.
// A runtime refuses the next container if it finds only then that a validator has left. So the
// validator leaves while the runtime waits for it here, where that does no harm, and is forgotten
// at once.
func (v *validator) PostCreateContainer(ctx context.Context, _ *api.PodSandbox, _ *api.Container) error {
	if !v.called.Load() {
		return nil
	}
	v.leave()
	<-ctx.Done() // until the connection has ended
	return ctx.Err()
}

// connect serves a plugin of that name until its connection ends or ctx is done. It calls ready
// when the runtime has registered the plugin.
func connect(ctx context.Context, socket, name string, plugin plugin, ready func()) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no %s: NRI is off", socket)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	served, err := stub.New(plugin, stub.WithPluginName(name), stub.WithPluginIdx(pluginIndex),
		stub.WithConnection(conn),
		stub.WithLogger(logger{klog.FromContext(ctx)}))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- served.Run(context.WithoutCancel(ctx)) }() // until the connection is closed
	late := time.NewTimer(accepting)
	defer late.Stop()
	accepted, registered := plugin.accepted(), plugin.ready()
	for err == nil {
		select {
		case <-accepted:
			accepted = nil
			if registered != nil {
				late.Reset(accepting)
			}
		case <-registered:
			registered = nil
			late.Stop()
			ready()
		case <-late.C:
			if accepted != nil {
				err = fmt.Errorf("the runtime did not begin to register the NRI plugin %s in %v", name, accepting)
				continue
			}
			klog.FromContext(ctx).Info("The container runtime has not registered the NRI plugin yet, and creates no "+
				"container meanwhile; it may be waiting for one that is being stopped", logkey.Plugin, name)
		case err := <-ended:
			return cmp.Or(err, io.EOF)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(accepting):
		// The stub still waits to be configured, by a runtime that has registered it and ended.
	}
	return err
}

// logger has the stub's messages in the log. What matters of them is logged by the caller.
type logger struct{ to klog.Logger }

func (l logger) Debugf(_ context.Context, format string, args ...any) { l.log(6, format, args) }

func (l logger) Infof(_ context.Context, format string, args ...any) { l.log(5, format, args) }

func (l logger) Warnf(_ context.Context, format string, args ...any) { l.log(4, format, args) }

func (l logger) Errorf(_ context.Context, format string, args ...any) { l.log(4, format, args) }

func (l logger) log(level int, format string, args []any) {
	if to := l.to.V(level); to.Enabled() {
		to.Info("NRI: " + fmt.Sprintf(format, args...))
	}
}

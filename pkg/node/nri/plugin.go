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

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

const (
	// defaultValidator is the name of the runtime's own validator, which knows the annotation.
	defaultValidator = "default-validator"
	// registering is how long the runtime may take to register a plugin.
	registering = 10 * time.Second
)

// plugin is what connect serves.
type plugin interface {
	// ready is closed when the runtime has registered the plugin.
	ready() <-chan struct{}
}

// member is what all plugins have in common.
type member struct {
	once   sync.Once
	synced chan struct{}
}

func newMember() *member { return &member{synced: make(chan struct{})} }

func (m *member) ready() <-chan struct{} { return m.synced }

// Synchronize is the last step of a registration.
func (m *member) Synchronize(
	context.Context, []*api.PodSandbox, []*api.Container,
) ([]*api.ContainerUpdate, error) {
	m.once.Do(func() { close(m.synced) })
	return nil, nil
}

// present is there. A plugin must subscribe to something; this is the rarest event that every
// version of NRI knows.
type present struct{ *member }

func (present) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// handling is there, and has its requests handled.
type handling struct {
	*member
	Handler
}

// Synchronize implements stub.SynchronizeInterface.
func (h handling) Synchronize(
	ctx context.Context, pods []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	if err := h.Handler.Synchronize(ctx, pods, containers); err != nil {
		return nil, err
	}
	return h.member.Synchronize(ctx, pods, containers)
}

// CreateContainer implements stub.CreateContainerInterface.
func (h handling) CreateContainer(
	ctx context.Context, pod *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjustment, err := h.Handler.CreateContainer(ctx, pod, container)
	if err != nil {
		return nil, nil, err
	}
	of := nribound.Pod{Namespace: pod.GetNamespace(), Name: pod.GetName()}
	if err := nribound.CheckAnswer(of, container.GetName(), adjustment); err != nil {
		return nil, nil, err
	}
	return adjustment, nil, nil
}

// StopContainer implements stub.StopContainerInterface.
func (h handling) StopContainer(
	ctx context.Context, pod *api.PodSandbox, container *api.Container,
) ([]*api.ContainerUpdate, error) {
	return nil, h.Handler.StopContainer(ctx, pod, container)
}

// Configure implements stub.ConfigureInterface. It subscribes to everything that there is a method
// for.
func (h handling) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	return 0, checkRuntime(runtime, version)
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
		v.registration.found(ctx, slices.ContainsFunc(request.GetPlugins(), func(p *api.PluginInstance) bool {
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
	served, err := stub.New(plugin, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(conn),
		stub.WithLogger(logger{klog.FromContext(ctx)}))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- served.Run(context.WithoutCancel(ctx)) }() // until the connection is closed
	registered := time.NewTimer(registering)
	defer registered.Stop()
	select {
	case <-plugin.ready():
		ready()
		select {
		case err := <-ended:
			return cmp.Or(err, io.EOF)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	case err := <-ended:
		return cmp.Or(err, io.EOF)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-registered.C:
		err = fmt.Errorf("the runtime did not register the NRI plugin %s in %v", name, registering)
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(registering):
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

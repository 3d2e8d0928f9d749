// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nrifrontend is the frontend of admission for NRI: an event of the runtime becomes an
// admission.Container, and what admission adds to that becomes an adjustment.
// docs/deploy/frontends.md compares it with the other frontend, the proxy for the CRI.
//
// Three things differ from the proxy:
//
//   - The runtime waits for a plugin with all pods of the node, and drops one that is late. So
//     Frontend answers in time, if need be that the container must be tried again, and Devices
//     calls device plugins ahead, and keeps their late answers for the next try.
//   - The runtime does not list what a plugin adds to a container. It reports it to plugins,
//     though: View remembers it for package grants.
//   - Containers are created without kubecri while it is away. When the runtime has registered it,
//     Frontend inspects those that run, and ends the ones that it would not have let pass, before
//     another container gets a device.
package nrifrontend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

const (
	// requestTimeout is how long the runtime waits for a plugin if it does not say so.
	requestTimeout = api.DefaultPluginRequestTimeout
	// stuckTimeout is how long a decision may take before something is wrong with this process.
	// Each of the waits in it ends after some seconds.
	stuckTimeout = time.Minute
	// claimsTimeout is how long it may take to find out which device plugins to call ahead.
	claimsTimeout = 30 * time.Second
)

// errLate and errEnding are why a container is refused that nothing may be wrong with.
var (
	errLate = errors.New("kubecri has not decided in the time that the container runtime gives to NRI plugins; the " +
		"container is tried again")
	errEnding = errors.New("kubecri ends; the container is tried again")
)

// Admission decides about containers. *admission.Admission does.
type Admission interface {
	Admit(ctx context.Context, c admission.Container) (*runtimeapi.ContainerConfig, error)
	Claims(ctx context.Context, pod admission.Pod) ([]plugins.Claim, error)
	Inspect(ctx context.Context, c admission.Container) (reason string, err error)
	Failed(ctx context.Context, c admission.Container, err error)
	Refuse(ctx context.Context, pod admission.Pod, cause error) error
}

// Options configure a Frontend.
type Options struct {
	Admission Admission
	// Devices are those of Admission.
	Devices *Devices
	View    *View
	// Key has the age of kubecri on this node. Containers that are older stay as they are.
	Key Key
	// Source reads what the runtime sends to plugins.
	Source Source
	// Ender ends containers that may not run.
	Ender  Ender
	Events Events
}

// Key is the key that a node signs grants with. *grants.Checkpoint has it.
type Key interface {
	// KeySince returns when it was made: when kubecri came to this node first.
	KeySince() time.Time
}

// Events writes events on pods. It must not block.
type Events interface {
	// WarnEnded reports that a container of the pod is ended, or that the sandbox of the pod, which
	// has ended, is removed, with the reason.
	WarnEnded(pod admission.Pod, message string)
}

// Frontend handles the runtime's requests.
type Frontend struct {
	options Options
	ctx     context.Context // of all goroutines
	stop    context.CancelFunc
	running sync.WaitGroup

	answering sync.WaitGroup // for CreateContainer
	sizes     *sizes

	mu       sync.Mutex
	draining bool
	leave    context.CancelFunc             // ends what concerns one connection
	deciding map[string]decision            // by the pod's UID and the container's name
	unsure   map[string]admission.Container // admitted with CDI devices and not yet created, by ID
	// removing is set while sandboxes of pods that have ended are removed.
	removing bool
}

// decision is one about a container that is not made yet.
type decision struct {
	id    string // the container's
	since time.Time
}

var _ nri.Handler = (*Frontend)(nil)

// New returns a frontend. Its goroutines end with Close.
func New(ctx context.Context, options Options) *Frontend {
	f := &Frontend{
		options: options, sizes: newSizes(), leave: func() {},
		deciding: map[string]decision{}, unsure: map[string]admission.Container{},
	}
	f.ctx, f.stop = context.WithCancel(ctx)
	return f
}

// Close ends the frontend's goroutines and waits for them. From then on all containers are refused.
func (f *Frontend) Close() {
	f.mu.Lock()
	f.stop()
	f.mu.Unlock()
	f.running.Wait()
}

// Drain refuses all further containers, and returns when those in flight are answered. A container
// whose answer the runtime does not get is created as if there were no kubecri.
func (f *Frontend) Drain() {
	f.mu.Lock()
	f.draining = true
	f.mu.Unlock()
	f.answering.Wait()
}

// enter reports whether a container may be decided about; answering.Done must follow.
func (f *Frontend) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.draining {
		f.answering.Add(1)
	}
	return !f.draining
}

// run runs do in a goroutine of the frontend, unless it is closed. The caller holds the mutex.
func (f *Frontend) run(do func()) {
	if f.ctx.Err() == nil {
		f.running.Go(do)
	}
}

// Check returns an error if a decision has hung for so long that only a restart helps.
func (f *Frontend) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.deciding {
		if took := time.Since(d.since); took > stuckTimeout {
			return fmt.Errorf("the decision about container %s has taken %v", d.id, took.Round(time.Second))
		}
	}
	return nil
}

// Synchronize implements nri.Handler.
func (f *Frontend) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave()
	ctx, leave := context.WithCancel(f.ctx)
	f.leave = leave
	clear(f.unsure)
	known := make(map[string]*api.PodSandbox, len(pods))
	uids := make(map[string]bool, len(pods))
	for _, pod := range pods {
		known[pod.GetId()] = pod
		uids[pod.GetUid()] = true
	}
	f.options.Devices.keepOnly(uids)
	f.options.View.replace(known, containers)
	f.countSizes(pods, containers)
	inspected, ending := f.options.Devices.hold()
	f.run(func() { f.inspect(ctx, known, containers, inspected, ending) })
	return nil
}

// Left implements nri.Handler.
func (f *Frontend) Left() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave()
}

// RunPodSandbox implements nri.Handler: it refuses a sandbox that is too large, and has the device
// plugins called that the pod's containers will need. What goes wrong there does so again when they
// are created.
func (f *Frontend) RunPodSandbox(_ context.Context, sandbox *api.PodSandbox) error {
	pod := podOf(sandbox)
	if err := f.addSandbox(sandbox); err != nil {
		return f.options.Admission.Refuse(f.ctx, pod, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run(func() {
		ctx, cancel := context.WithTimeout(f.ctx, claimsTimeout)
		defer cancel()
		claims, err := f.options.Admission.Claims(ctx, pod)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("Device plugins are not called in advance", logkey.PodUID, pod.UID,
				logkey.Reason, err.Error())
			return
		}
		for _, claim := range claims {
			f.options.Devices.start(claim)
		}
	})
	return nil
}

// CreateContainer implements nri.Handler. Of the time that the runtime gives it, the waits of a
// decision end after 8 twentieths, and after 9 the container is refused: by default 0.8 and 0.9
// seconds, so that the runtime waits for less than one.
func (f *Frontend) CreateContainer(
	ctx context.Context, sandbox *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, error) {
	if !f.enter() {
		return nil, unavailable(errEnding)
	}
	defer f.answering.Done()
	left := requestTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	last := time.NewTimer(left * 9 / 20)
	defer last.Stop()
	if err := checkContents(sandbox, c); err != nil {
		return nil, f.options.Admission.Refuse(f.ctx, podOf(sandbox), err)
	}
	container := containerOf(sandbox, c)
	failpoint.Reach(failpoint.Decoded)
	type result struct {
		addition *runtimeapi.ContainerConfig
		err      error
	}
	answered := make(chan result, 1)
	begun := f.decide(sandbox.GetUid()+"/"+c.GetName(), c.GetId(), func() (answer func()) {
		// All waits of admission end with the context, but the disk may be slow.
		ctx, cancel := context.WithTimeout(f.ctx, left*8/20)
		defer cancel()
		addition, err := f.options.Admission.Admit(ctx, container)
		return func() { answered <- result{addition, err} }
	})
	if !begun {
		return nil, unavailable(errLate)
	}
	select {
	case a := <-answered:
		if a.err != nil {
			return nil, a.err
		}
		adjustment, err := f.answer(sandbox, c, a.addition)
		if err != nil {
			return nil, f.options.Admission.Refuse(f.ctx, container.Pod, err)
		}
		if adjustment == nil {
			return nil, nil
		}
		f.expect(c.GetId(), container, a.addition)
		failpoint.Reach(failpoint.Forwarding)
		return adjustment, nil
	case <-last.C:
	case <-ctx.Done():
	}
	return nil, unavailable(errLate)
}

// answer returns the answer to the runtime, nil if nothing is added to the container, and counts
// its size.
func (f *Frontend) answer(
	sandbox *api.PodSandbox, c *api.Container, addition *runtimeapi.ContainerConfig,
) (adjustment *api.ContainerAdjustment, err error) {
	if addition != nil {
		if adjustment, err = adjustmentOf(addition); err != nil {
			return nil, fmt.Errorf("container %q: %w", c.GetName(), err)
		}
	}
	size := nribound.ContainerSize(c)
	if err := nribound.CheckChanged(boundPod(sandbox), c.GetName(), size.Bytes, adjustment); err != nil {
		return nil, err
	}
	return adjustment, f.sizes.addContainer(sandbox, c, size.Plus(nribound.AdjustmentSize(adjustment)))
}

// unavailable returns what the runtime is answered for a container that may pass when it is tried
// again.
func unavailable(cause error) error {
	return status.Error(codes.Unavailable, "kubecri: "+cause.Error())
}

// decide runs the decision about a container, and reports true. While the decision about its last
// try runs, it reports false: the kubelet goes on trying when it was answered that kubecri is late,
// and decisions that pile up would make kubecri late for every pod. The decision has ended before
// the answer that it returns is called, so that a try that follows it is decided, too.
func (f *Frontend) decide(name, id string, make func() (answer func())) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, runs := f.deciding[name]; runs {
		return false
	}
	f.deciding[name] = decision{id, time.Now()}
	f.run(func() {
		answer := make()
		f.mu.Lock()
		delete(f.deciding, name)
		f.mu.Unlock()
		answer()
	})
	return true
}

// expect remembers a container with CDI devices until the runtime has created it.
func (f *Frontend) expect(id string, c admission.Container, addition *runtimeapi.ContainerConfig) {
	if !slices.ContainsFunc(addition.GetCDIDevices(), func(d *runtimeapi.CDIDevice) bool {
		return !strings.HasPrefix(d.GetName(), cdi.VariablesKind+"=")
	}) {
		return // those hold variables
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsure[id] = c
}

// forgetExpected forgets it.
func (f *Frontend) forgetExpected(id string) (c admission.Container, expected bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, expected = f.unsure[id]
	delete(f.unsure, id)
	return c, expected
}

// PostCreateContainer implements nri.Handler.
func (f *Frontend) PostCreateContainer(_ context.Context, sandbox *api.PodSandbox, c *api.Container) error {
	failpoint.Reach(failpoint.Answered)
	f.forgetExpected(c.GetId())
	f.options.View.add(sandbox, c)
	return nil
}

// StopContainer implements nri.Handler.
func (f *Frontend) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	f.sizes.removeContainer(c.GetId())
	return nil
}

// errNotCreated is the one cause of which something follows, as the runtime does not tell any.
var errNotCreated = errors.New("the runtime did not create the container with its CDI devices")

// RemoveContainer implements nri.Handler.
func (f *Frontend) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	f.options.View.remove(c.GetId())
	f.sizes.removeContainer(c.GetId())
	container, expected := f.forgetExpected(c.GetId())
	if !expected {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run(func() { f.options.Admission.Failed(f.ctx, container, errNotCreated) })
	return nil
}

// RemovePodSandbox implements nri.Handler.
func (f *Frontend) RemovePodSandbox(_ context.Context, sandbox *api.PodSandbox) error {
	f.options.Devices.forget(sandbox.GetUid())
	f.sizes.removeSandbox(sandbox.GetId())
	return nil
}

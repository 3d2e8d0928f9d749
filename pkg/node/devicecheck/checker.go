// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicecheck finds containers that run without the devices that they were allocated,
// because no program adds these.
//
// Some device plugins do not pass device files, but name the devices in a variable or a mount, for
// the container runtime of the vendor: NVIDIA_VISIBLE_DEVICES for NVIDIA's. Where the pod's runtime
// handler does not start that runtime, the container starts, and has no device. So after such a
// container was created, Checker reads from the CRI which program starts it, and what its
// specification has: a plain OCI runtime adds nothing to a specification without device files of
// the vendor and without hooks.
//
// The check needs neither the process of the container nor access to it, so it holds for a program
// that ends at once, or is not found, as well. It runs after the container was created, and delays
// none.
package devicecheck

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// maxPending is how many containers are followed at a time, and how many more may wait for that.
// Further ones are not checked.
const maxPending = 256

// Delays returns the times before each try to find a container, one after another: creating it
// takes the runtime a while. A container that is not there after the last one was not created.
func Delays() []time.Duration { return []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} }

// Container is a container as the runtime describes it.
type Container struct {
	// Handler is the runtime handler of its pod, which its RuntimeClass names; empty for the
	// default one.
	Handler string
	// Program is the OCI runtime that starts it, a path or a name. It is empty where that is not
	// known, as of runtimes that use virtual machines.
	Program string
	// Hooks says that its specification has hooks, which can add devices when it is started.
	Hooks bool
	// Paths are those of the device files and bind mounts in its specification, as it sees them.
	Paths []string
}

// Runtime describes containers.
type Runtime interface {
	// Newest returns the newest container of a name in a pod that was created at a time or later.
	// found is false where there is none.
	Newest(ctx context.Context, podUID, name string, created time.Time) (c Container, found bool, err error)
}

// Observer is notified of containers that lack devices. It must not block.
type Observer interface {
	// Missing says that a container of the pod lacks devices of a vendor, and for the pod's owner
	// why. handler is the runtime handler.
	Missing(pod *corev1.ObjectReference, vendor, handler, message string)
}

// expectation is what vendors' runtimes have to add to a container that is being created.
type expectation struct {
	pod       *corev1.ObjectReference
	container string
	expected  []firewall.Expected
	since     time.Time
}

// Checker checks containers. Its methods are safe for concurrent use.
type Checker struct {
	runtime  Runtime
	observer Observer
	pending  chan expectation

	mu sync.Mutex
	// newest has the time of the newest expectation of each container that is followed, by the
	// pod's UID and the container's name: a container may be tried several times, and is reported
	// once.
	newest map[string]time.Time
}

// New returns a checker of the runtime's containers. Call Run, too.
func New(runtime Runtime, observer Observer) *Checker {
	return &Checker{
		runtime: runtime, observer: observer, pending: make(chan expectation, maxPending),
		newest: map[string]time.Time{},
	}
}

// Expect has a container checked that is about to be created: vendors' runtimes have to add to it
// what is expected. It does not block.
func (c *Checker) Expect(pod *corev1.ObjectReference, container string, expected []firewall.Expected) {
	select {
	case c.pending <- expectation{pod: pod, container: container, expected: expected, since: time.Now()}:
	default:
	}
}

// Run checks containers until ctx is done. delays are those of Delays.
func (c *Checker) Run(ctx context.Context, delays []time.Duration) {
	var checking sync.WaitGroup
	defer checking.Wait()
	slots := make(chan struct{}, maxPending)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		select {
		case e := <-c.pending:
			c.mu.Lock()
			c.newest[e.key()] = e.since
			c.mu.Unlock()
			checking.Go(func() {
				c.follow(ctx, e, delays)
				<-slots
			})
		case <-ctx.Done():
			return
		}
	}
}

func (e expectation) key() string { return string(e.pod.UID) + "/" + e.container }

// end ends the expectation, and reports whether it was the newest of its container.
func (c *Checker) end(e expectation) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNewest := c.newest[e.key()].Equal(e.since)
	if isNewest {
		delete(c.newest, e.key())
	}
	return isNewest
}

// follow checks a container as soon as it is there.
func (c *Checker) follow(ctx context.Context, e expectation, delays []time.Duration) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KRef(e.pod.Namespace, e.pod.Name),
		logkey.Container, e.container)
	defer c.end(e)
	for _, delay := range delays {
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		now, found, err := c.runtime.Newest(ctx, string(e.pod.UID), e.container, e.since)
		if err != nil {
			logger.V(4).Info("Whether a container has its devices is not known", logkey.Reason, err.Error())
		}
		if err == nil && found {
			if c.end(e) {
				c.report(logger, e, now)
			}
			return
		}
	}
}

// report warns of what a container lacks.
func (c *Checker) report(logger klog.Logger, e expectation, now Container) {
	for _, expected := range e.expected {
		if !now.lacks(expected) {
			continue
		}
		problem := message(e.container, expected, now)
		logger.Info("A container runs without its devices", logkey.Problem, problem)
		c.observer.Missing(e.pod, expected.Vendor, now.Handler, problem)
	}
}

// lacks reports whether no program adds what is expected to the container. It does not where that
// is not known.
func (c Container) lacks(expected firewall.Expected) bool {
	return isPlain(c.Program) && !c.Hooks && !slices.ContainsFunc(c.Paths, expected.Has)
}

// plainRuntimes are OCI runtimes that add nothing to the specification of a container.
var plainRuntimes = []string{"runc", "crun", "youki"}

// isPlain reports whether a program is such an OCI runtime, and not a link to another program.
func isPlain(program string) bool {
	if filepath.IsAbs(program) {
		if file, err := filepath.EvalSymlinks(program); err == nil {
			program = file
		}
	}
	return slices.Contains(plainRuntimes, filepath.Base(program))
}

// maxRequest is how much a message has of a request, in bytes: a container may have many devices.
const maxRequest = 200

// message says what a container lacks, why, and what its pod's owner and the node's administrator
// can do.
func message(container string, expected firewall.Expected, now Container) string {
	request := truncate.Ellipsize(expected.Request, maxRequest)
	handler := fmt.Sprintf("runtime handler %q", now.Handler)
	if now.Handler == "" {
		handler = "default runtime handler"
	}
	setup := ""
	if expected.Setup != "" {
		setup = " (" + expected.Setup + ")"
	}
	return fmt.Sprintf("container %q runs without its devices: %s is for the container runtime of %s, but the %s of "+
		"the pod starts %s, which does not read it. Create the pod again with the runtimeClassName of that runtime, "+
		"or make that runtime the node's default one%s, or have the device plugin pass CDI devices or device files",
		container, request, expected.Vendor, handler, filepath.Base(now.Program), setup)
}

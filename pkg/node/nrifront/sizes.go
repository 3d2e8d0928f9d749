// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// sizes has the encoded sizes, in bytes, of the runtime's containers that have not ended. All
// methods are safe for concurrent use.
type sizes struct {
	mu         sync.Mutex
	containers map[string]containerSize // by ID
}

type containerSize struct {
	sandbox string
	size    int
}

func newSizes() *sizes { return &sizes{containers: map[string]containerSize{}} }

// replace sets all of them.
func (s *sizes) replace(containers []*api.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.containers)
	for _, c := range containers {
		s.containers[c.GetId()] = containerSize{c.GetPodSandboxId(), nribound.SizeOf(c)}
	}
}

// addContainer adds a container, unless the pod gets too large with it: then it returns why.
func (s *sizes) addContainer(sandbox *api.PodSandbox, c *api.Container, size int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := nribound.SizeOf(sandbox)
	for id, other := range s.containers {
		if other.sandbox == sandbox.GetId() && id != c.GetId() {
			others += other.size
		}
	}
	if err := nribound.CheckPod(boundPod(sandbox), c.GetName(), others, size); err != nil {
		return err
	}
	s.containers[c.GetId()] = containerSize{sandbox.GetId(), size}
	return nil
}

func (s *sizes) removeContainer(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, id)
}

// boundPod names the pod of a sandbox.
func boundPod(sandbox *api.PodSandbox) nribound.Pod {
	return nribound.Pod{Namespace: sandbox.GetNamespace(), Name: sandbox.GetName()}
}

// sandboxesTimeout is how long the runtime may take to list its sandboxes: a part of what it waits
// for an answer.
const sandboxesTimeout = time.Second

// checkSandbox returns why a sandbox is too large, by itself or together with all others.
func (f *Front) checkSandbox(ctx context.Context, sandbox *api.PodSandbox) error {
	pod, size := boundPod(sandbox), nribound.SizeOf(sandbox)
	if err := nribound.CheckSandbox(pod, nribound.SandboxContents(sandbox)); err != nil {
		return err
	}
	if size <= nribound.SmallSandbox {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sandboxesTimeout)
	defer cancel()
	list, err := f.options.Source.Sandboxes(ctx)
	if err != nil {
		return fmt.Errorf("pod %v: whether its sandbox of %d bytes is too large together with the others is not "+
			"known: %w", pod, size, err)
	}
	others := 0
	for _, other := range list {
		if other.GetId() != sandbox.GetId() {
			others += other.Size
		}
	}
	return nribound.CheckSandboxes(pod, size, others)
}

// checkContents returns why a container is refused for its size alone: it, or its sandbox, is too
// large.
func checkContents(sandbox *api.PodSandbox, c *api.Container) error {
	if err := nribound.CheckSandbox(boundPod(sandbox), nribound.SandboxContents(sandbox)); err != nil {
		return err
	}
	return nribound.CheckContainer(boundPod(sandbox), c.GetName(), nribound.ContainerContents(c))
}

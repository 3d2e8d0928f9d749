// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"maps"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// sizes has the sizes of the runtime's sandboxes, and of its containers that have not ended. All
// methods are safe for concurrent use.
type sizes struct {
	mu         sync.Mutex
	sandboxes  map[string]int           // in bytes, by ID
	sum        int                      // of the sandboxes, in bytes
	containers map[string]containerSize // by ID
}

type containerSize struct {
	sandbox string
	size    nribound.Size
}

func newSizes() *sizes {
	return &sizes{sandboxes: map[string]int{}, containers: map[string]containerSize{}}
}

// replace sets all of them.
func (s *sizes) replace(sandboxes []*api.PodSandbox, containers []*api.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sandboxes)
	s.sum = 0
	for _, sandbox := range sandboxes {
		s.setSandbox(sandbox.GetId(), sandbox.SizeVT())
	}
	clear(s.containers)
	for _, c := range containers {
		s.containers[c.GetId()] = containerSize{c.GetPodSandboxId(), nribound.ContainerSize(c)}
	}
}

// setSandbox sets the size of a sandbox. The caller holds the mutex.
func (s *sizes) setSandbox(id string, size int) {
	s.sum += size - s.sandboxes[id]
	s.sandboxes[id] = size
}

// addSandbox adds a sandbox, unless it is too large together with the others: then it returns why.
func (s *sizes) addSandbox(sandbox *api.PodSandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, size := sandbox.GetId(), sandbox.SizeVT()
	if err := nribound.CheckSandboxes(boundPod(sandbox), size, s.sum-s.sandboxes[id]); err != nil {
		return err
	}
	s.setSandbox(id, size)
	return nil
}

func (s *sizes) removeSandbox(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum -= s.sandboxes[id]
	delete(s.sandboxes, id)
}

func (s *sizes) sandboxIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.sandboxes))
}

// sandboxesSum returns the sum of all sandboxes.
func (s *sizes) sandboxesSum() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum
}

// addContainer adds a container, unless the pod gets too large with it: then it returns why.
func (s *sizes) addContainer(sandbox *api.PodSandbox, c *api.Container, size nribound.Size) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := nribound.SandboxSize(sandbox)
	for id, other := range s.containers {
		if other.sandbox == sandbox.GetId() && id != c.GetId() {
			others = others.Plus(other.size)
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

// countSizes counts what the runtime has, and makes room if the sandboxes take more than all may.
// The caller holds the mutex.
func (f *Frontend) countSizes(sandboxes []*api.PodSandbox, containers []*api.Container) {
	f.sizes.replace(sandboxes, containers)
	if f.sizes.sandboxesSum() > nribound.MaxSandboxes {
		f.removeEndedSandboxes()
	}
}

// addSandbox counts a sandbox, or returns why it is too large, by itself or together with all
// others. In the latter case, or if small sandboxes alone take more than all may, it makes room.
func (f *Frontend) addSandbox(sandbox *api.PodSandbox) error {
	if err := nribound.CheckSandbox(boundPod(sandbox), nribound.SandboxContents(sandbox)); err != nil {
		return err
	}
	err := f.sizes.addSandbox(sandbox)
	if err != nil || f.sizes.sandboxesSum() > nribound.MaxSandboxes {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.removeEndedSandboxes()
	}
	return err
}

// checkContents returns why a container is refused for its size alone: it, or its sandbox, is too
// large.
func checkContents(sandbox *api.PodSandbox, c *api.Container) error {
	if err := nribound.CheckSandbox(boundPod(sandbox), nribound.SandboxContents(sandbox)); err != nil {
		return err
	}
	return nribound.CheckContainer(boundPod(sandbox), c.GetName(), nribound.ContainerContents(c))
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// View is what the runtime has reported of containers that exist: their encoded allocations as
// grants.Annotation, which its lists do not have. All methods are safe for concurrent use.
type View struct {
	mu      sync.Mutex
	encoded map[string]string // by the container's ID
	first   chan struct{}     // closed by the first replace
}

// NewView returns a view that knows nothing.
func NewView() *View { return &View{first: make(chan struct{})} }

func (v *View) replace(pods map[string]*api.PodSandbox, containers []*api.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.encoded == nil {
		close(v.first)
	}
	v.encoded = make(map[string]string, len(containers))
	for _, c := range containers {
		v.encoded[c.GetId()] = annotationsOf(pods[c.GetPodSandboxId()], c)[grants.Annotation]
	}
}

func (v *View) add(pod *api.PodSandbox, c *api.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.encoded != nil {
		v.encoded[c.GetId()] = annotationsOf(pod, c)[grants.Annotation]
	}
}

func (v *View) remove(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.encoded, id)
}

func (v *View) has(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, has := v.encoded[id]
	return has
}

// Runtime returns the runtime that lists its pods, with the encoded allocations of their
// containers. Containers without one are left out: what follows from that is up to Frontend. It
// waits until the runtime has registered kubecri once.
func (v *View) Runtime(listed grants.Runtime) grants.Runtime { return viewed{v, listed} }

type viewed struct {
	view   *View
	listed grants.Runtime
}

// Pods implements grants.Runtime.
func (r viewed) Pods(ctx context.Context) (map[string]grants.RuntimeState, error) {
	select {
	case <-r.view.first:
	case <-ctx.Done():
		return nil, fmt.Errorf("NRI has not reported which containers there are: %w", context.Cause(ctx))
	}
	pods, err := r.listed.Pods(ctx)
	if err != nil {
		return nil, err
	}
	r.view.mu.Lock()
	defer r.view.mu.Unlock()
	for uid, pod := range pods {
		var encoded []grants.RuntimeContainer
		for _, c := range pod.Containers {
			if c.Encoded = r.view.encoded[c.ID]; c.Encoded != "" {
				encoded = append(encoded, c)
			}
		}
		pod.Containers = encoded
		pods[uid] = pod
	}
	return pods, nil
}

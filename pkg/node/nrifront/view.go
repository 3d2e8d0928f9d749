// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// View is what the runtime has reported of containers that exist: what they carry as
// grants.Annotation, which its lists do not have. All methods are safe for concurrent use.
type View struct {
	mu      sync.Mutex
	carried map[string]string // by the container's ID
	first   chan struct{}     // closed by the first replace
}

// NewView returns a view that knows nothing.
func NewView() *View { return &View{first: make(chan struct{})} }

func (v *View) replace(pods map[string]*api.PodSandbox, containers []*api.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.carried == nil {
		close(v.first)
	}
	v.carried = make(map[string]string, len(containers))
	for _, c := range containers {
		v.carried[c.GetId()] = annotationsOf(pods[c.GetPodSandboxId()], c)[grants.Annotation]
	}
}

func (v *View) add(pod *api.PodSandbox, c *api.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.carried != nil {
		v.carried[c.GetId()] = annotationsOf(pod, c)[grants.Annotation]
	}
}

func (v *View) remove(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.carried, id)
}

func (v *View) has(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, has := v.carried[id]
	return has
}

// Runtime returns the runtime that lists its pods, with what their containers carry. Containers
// that carry nothing are left out: what follows from that is the Front's business. It waits until
// the runtime has registered kubecri once.
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
		var carrying []grants.RuntimeContainer
		for _, c := range pod.Containers {
			if c.Carried = r.view.carried[c.ID]; c.Carried != "" {
				carrying = append(carrying, c)
			}
		}
		pod.Containers = carrying
		pods[uid] = pod
	}
	return pods, nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// fileClaim is the claim of plugin files on a resource that the kubelet knows. The mutex of Files
// guards it. When it ends, another one takes its place for as long as the kubelet knows the
// resource.
type fileClaim struct {
	files    *Files
	resource types.ResourceName

	rivalSeen  time.Time // when the kubelet last had devices of another plugin
	kubelets   bool      // the kubelet has devices of another plugin, or a pod holds one
	taken      bool      // the kubelet is to have the resource from this program
	registered bool      // it has, or had before this program started
	placed     bool      // a placeholder runs
	ended      chan struct{}
}

var _ claim = (*fileClaim)(nil)

// newClaim adds a claim. The caller holds mu.
func (f *Files) newClaim(name types.ResourceName) *fileClaim {
	c := &fileClaim{files: f, resource: name, ended: make(chan struct{})}
	f.claims[name] = c
	return c
}

// endClaim ends what the kubelet has from this program by a claim, which may be nil, and returns
// the claim that takes its place. The caller holds mu.
func (f *Files) endClaim(ctx context.Context, c *fileClaim) *fileClaim {
	if c == nil || !c.taken {
		return c
	}
	klog.FromContext(ctx).Info("Leaving a resource that kubecri had taken over", logkey.Resource, c.resource)
	close(c.ended)
	next := f.newClaim(c.resource)
	next.rivalSeen, next.kubelets = c.rivalSeen, c.kubelets
	return next
}

// Ended implements claim.
func (c *fileClaim) Ended() <-chan struct{} { return c.ended }

// Devices implements claim: as many as the plugin files have, and those that the kubelet allocated
// to containers before. All are healthy: by the node's annotation the scheduler knows which are.
func (c *fileClaim) Devices() (list []devicemanager.KubeletDevice, changed <-chan struct{}) {
	c.files.mu.Lock()
	count, changed := c.files.counts[c.resource], c.files.changed
	c.files.mu.Unlock()
	ids := map[string]bool{}
	for i := range int(count) {
		ids[kubeletstate.PlaceholderID(i)] = true
	}
	// If it cannot be read, what it has stays as the kubelet last had it, or is listed next time.
	state, _ := kubeletstate.Read(filepath.Join(c.files.options.KubeletDir, kubeletstate.CheckpointName))
	for _, holding := range state.Holdings {
		if holding.Resource == c.resource && holding.Placeholder {
			for _, id := range holding.IDs {
				ids[id] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		list = append(list, devicemanager.KubeletDevice{ID: id})
	}
	return list, changed
}

// Offer implements claim.
func (c *fileClaim) Offer() {
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	if c.files.claims[c.resource] != c || c.registered {
		return
	}
	c.registered = true
	blocked := maps.Clone(c.files.blocked)
	delete(blocked, c.resource)
	c.files.block(context.Background(), blocked)
}

// Forget implements claim.
func (c *fileClaim) Forget(ctx context.Context) {
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	if c.files.claims[c.resource] != c {
		return
	}
	klog.FromContext(ctx).Info("The kubelet has forgotten a resource that kubecri had taken over", logkey.Resource,
		c.resource)
	close(c.ended)
	delete(c.files.claims, c.resource)
	c.files.notify()
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
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

var _ contestable = (*fileClaim)(nil)

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
	f.left[c.resource] = f.options.Clock.Now()
	next := f.newClaim(c.resource)
	next.rivalSeen, next.kubelets = c.rivalSeen, c.kubelets
	return next
}

// Contested implements contestable: the plugin that registered with the kubelet serves.
func (c *fileClaim) Contested(ctx context.Context) bool {
	f := c.files
	has := f.kubeletHas(ctx, c.resource)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims[c.resource] != c {
		return true
	}
	if has.Device == "" {
		return false
	}
	f.yield(ctx, c, has)
	return true
}

// Ended implements claim.
func (c *fileClaim) Ended() <-chan struct{} { return c.ended }

// Devices implements claim: as many as the devices of the plugin files count, and those of
// placeholders of plugin files that the kubelet allocated to containers before. Others would count
// as another plugin's. All are healthy: by the node's annotation the scheduler knows which are.
func (c *fileClaim) Devices() (list []devicemanager.KubeletDevice, changed <-chan struct{}) {
	c.files.mu.Lock()
	count, changed := c.files.counts[c.resource], c.files.changed
	c.files.mu.Unlock()
	count = c.files.options.VirtualDevices.Count(c.resource, count)
	ids := map[string]bool{}
	for i := range int(count) {
		ids[kubeletstate.PlaceholderID(i)] = true
	}
	// If it cannot be read, what it has stays as the kubelet last had it, or is listed next time.
	state, _ := kubeletstate.Read(filepath.Join(c.files.options.KubeletDir, kubeletstate.CheckpointName))
	for _, holding := range state.Holdings {
		if holding.Resource == c.resource && holding.Placeholder {
			for _, id := range holding.IDs {
				if kubeletstate.IsPlaceholderID(id) {
					ids[id] = true
				}
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

// withdrawInterval is for the kubelet to notice that a placeholder has left.
const withdrawInterval = time.Second

// withdrawal takes from the kubelet what it has of a resource from a placeholder that has left. The
// kubelet would allocate such devices only while it has another plugin of the resource: that one
// registered at the same time as the placeholder, and sent its devices first. It gets calls with
// IDs that it does not know, and fails pods.
//
// A withdrawal registers once more, sends an empty list and leaves. The kubelet then has no device
// of the resource, and is sent no pods, until the other plugin sends its devices again.
type withdrawal struct {
	files    *Files
	resource types.ResourceName
	ended    chan struct{} // closed with the files' mu held
}

var _ contestable = (*withdrawal)(nil)

// withdraw has place register a withdrawal for each resource of which the kubelet has devices
// without a claim. The caller holds mu.
func (f *Files) withdraw(
	ctx context.Context, known map[types.ResourceName]devicemanager.KubeletHolding,
	place func(context.Context, types.ResourceName, claim),
) {
	for name, has := range known {
		c := f.claims[name]
		isClaimed := c != nil && c.taken
		if !has.Placeholder || isClaimed || f.withdrawals[name] != nil ||
			f.options.Clock.Since(f.left[name]) < withdrawInterval {
			continue
		}
		w := &withdrawal{files: f, resource: name, ended: make(chan struct{})}
		f.withdrawals[name] = w
		place(ctx, name, w)
	}
}

// end ends the withdrawal. The caller holds the files' mu.
func (w *withdrawal) end() {
	if w.files.withdrawals[w.resource] == w {
		delete(w.files.withdrawals, w.resource)
		close(w.ended)
	}
}

// Contested implements contestable. It ends the withdrawal unless the kubelet has a placeholder's
// devices still, without a claim.
func (w *withdrawal) Contested(ctx context.Context) bool {
	has := w.files.kubeletHas(ctx, w.resource)
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	c := w.files.claims[w.resource]
	if has.Placeholder && (c == nil || !c.taken) {
		return false
	}
	w.end()
	return true
}

// Ended implements claim.
func (w *withdrawal) Ended() <-chan struct{} { return w.ended }

// Devices implements claim: none.
func (w *withdrawal) Devices() (list []devicemanager.KubeletDevice, changed <-chan struct{}) {
	return nil, nil
}

// Offer implements claim: the empty list was sent.
func (w *withdrawal) Offer() {
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	err := fmt.Errorf("a device plugin of %s registered with the kubelet at the same time as kubecri, and the kubelet "+
		"had kubecri's devices in the place of that plugin's: they are withdrawn, and the node has none of %s until "+
		"that plugin registers again; restart it", w.resource, w.resource)
	klog.Background().Error(err, "Withdrew devices from the kubelet", logkey.Resource, w.resource)
	w.files.options.Events.WarnOfConflict(err)
	w.end()
}

// Forget implements claim: the kubelet has forgotten the resource.
func (w *withdrawal) Forget(context.Context) {
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	w.end()
}

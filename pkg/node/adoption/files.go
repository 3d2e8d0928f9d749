// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// FilesStateName is the name of the state file of [Files] in the state directory.
const FilesStateName = "files"

// Kubelet reads what the kubelet has. *devicemanager.Manager implements it.
type Kubelet interface {
	ReadKubelet(ctx context.Context) (map[types.ResourceName]devicemanager.KubeletHolding, error)
}

// FilesOptions are what Files need.
type FilesOptions struct {
	// Files is the transport of the plugin files.
	Files plugins.Transport
	// KubeletDir is the directory in which plugins register with the kubelet.
	KubeletDir string
	// StateFile is the file in which it survives a restart what the kubelet has from this program.
	StateFile string
	// Kubelet reads what the kubelet has; nil stands for nothing.
	Kubelet Kubelet
	// VirtualDevices are how often each device counts. Where the kubelet counts and publishes a
	// resource, it must have as many placeholders.
	VirtualDevices advertise.VirtualDevices
	// Grants has the devices that pods hold.
	Grants Lister
	Events FilesEvents
	// Clock, if set, replaces the real one.
	Clock clock.PassiveClock
}

// Lister lists the devices that pods hold. *grants.Checkpoint implements it.
type Lister interface {
	List() []grants.Allocation
}

// FilesEvents writes warning events on the node.
type FilesEvents interface {
	// WarnOfConflict reports that the node has none of a resource for now, and why. It must not
	// block.
	WarnOfConflict(conflict error)
}

// Files are the plugin files of a node as far as their resources are not another's. It is a
// [plugins.Transport]. All methods are safe for concurrent use.
//
// Two plugins of one resource have the same devices under different names, so one of them offers
// it. A plugin file offers none of its devices while
//
//   - the kubelet has devices of one of its resources, from a plugin that is registered there;
//   - a pod holds a device that the kubelet allocated;
//   - the kubelet has had devices of it within the last minute: its plugin may be restarting;
//   - the kubelet remembers such a plugin and does not have the resource from this program yet;
//   - a plugin of the kubelet's API, which has registered here, has taken the resource over, or a
//     pod holds a device of it.
//
// Of a resource that the kubelet only remembers, it has placeholders from this program, with IDs
// that mean nothing: it then admits pods that request the resource.
type Files struct {
	options FilesOptions
	state   *statefile.File

	mu        sync.Mutex
	evaluated bool // the claims were compared with the kubelet once
	claims    map[types.ResourceName]*fileClaim
	blocked   map[types.ResourceName]error // never changed
	// devices are those of the plugin file that publishes a resource, or last did: all that it has.
	devices map[types.ResourceName][]types.ResourceName
	counts  map[types.ResourceName]int64     // how many it publishes, or last did
	left    map[types.ResourceName]time.Time // when a placeholder of the resource last ended
	// withdrawals are of resources whose devices the kubelet has from this program without a claim.
	withdrawals map[types.ResourceName]*withdrawal
	changed     chan struct{} // closed and replaced with every change
}

var _ plugins.Transport = (*Files)(nil)

// NewFiles returns the plugin files of a node. A [Controller] that has them compares them with the
// kubelet; until then none of their extended resources is offered. An error says that what the
// kubelet has from this program is not known; the rest works as without a state file.
func NewFiles(options FilesOptions) (*Files, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	f := &Files{
		options: options, state: &statefile.File{Path: options.StateFile, Kind: "files"},
		claims: map[types.ResourceName]*fileClaim{}, changed: make(chan struct{}),
		left: map[types.ResourceName]time.Time{}, withdrawals: map[types.ResourceName]*withdrawal{},
	}
	before, err := readFilesState(f.state)
	if f.devices = before.Devices; f.devices == nil {
		f.devices = map[types.ResourceName][]types.ResourceName{}
	}
	if f.counts = before.Counts; f.counts == nil {
		f.counts = map[types.ResourceName]int64{}
	}
	for _, name := range before.Taken {
		c := f.newClaim(name)
		c.taken, c.registered = true, true
	}
	return f, err
}

// notify records a change. The caller holds mu.
func (f *Files) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// run compares the claims with the kubelet whenever plugin files report something else, until ctx
// is done. The controller does so when it has read what the kubelet has.
func (f *Files) run(ctx context.Context, c *Controller) {
	f.mu.Lock()
	f.place(ctx, c.place) // at once: until then the kubelet fails pods
	f.mu.Unlock()
	for {
		_, _, changed := f.options.Files.Sources()
		f.update(ctx, c)
		f.mu.Lock()
		f.notify()
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// update compares the claims with what the kubelet was last read to have.
func (f *Files) update(ctx context.Context, c *Controller) {
	if known, read := c.Manager.Kubelet(); read {
		f.compare(ctx, known, c.Manager.IsTakenOver, c.place)
	}
}

// compare compares the claims with what the kubelet has, nil if that is not known, and has place
// register placeholders. hosted reports whether a plugin of the kubelet's API that has registered
// here has taken a resource over.
func (f *Files) compare(
	ctx context.Context, known map[types.ResourceName]devicemanager.KubeletHolding,
	hosted func(types.ResourceName) bool,
	place func(context.Context, types.ResourceName, claim),
) {
	sources, complete, _ := f.options.Files.Sources()
	holders := hostedHolders(f.options.Grants.List())
	f.mu.Lock()
	defer f.mu.Unlock()
	blocked, published := map[types.ResourceName]error{}, map[types.ResourceName]bool{}
	for _, source := range sources {
		state := source.State()
		complete = complete && state.Reported
		info := state.Info
		if info == nil {
			continue
		}
		for name, count := range info.KubeCap {
			published[name], f.counts[name] = true, count
			f.devices[name] = slices.Sorted(maps.Keys(info.Capacity))
			if err := f.check(ctx, name, known, holders[name], hosted(name)); err != nil {
				blocked[name] = err
			}
		}
	}
	f.place(ctx, place)
	for name, c := range f.claims {
		if complete && !published[name] { // the plugin file was removed
			f.endClaim(ctx, c)
			delete(f.claims, name)
		}
	}
	f.withdraw(ctx, known, place)
	f.save(ctx)
	f.block(ctx, blocked)
}

// kubeletHas returns what the kubelet has of a resource now. What cannot be read is nothing.
func (f *Files) kubeletHas(ctx context.Context, name types.ResourceName) devicemanager.KubeletHolding {
	if f.options.Kubelet == nil {
		return devicemanager.KubeletHolding{}
	}
	known, err := f.options.Kubelet.ReadKubelet(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read what the kubelet has of a resource", logkey.Resource, name,
			logkey.Reason, err.Error())
	}
	return known[name]
}

// place has place register a placeholder for each resource that the kubelet is to have from this
// program and does not. The caller holds mu.
func (f *Files) place(ctx context.Context, place func(context.Context, types.ResourceName, claim)) {
	for name, c := range f.claims {
		if c.taken && !c.placed {
			c.placed = true
			place(ctx, name, c)
		}
	}
}

// yield leaves the resource of a claim to the kubelet, which has this of another plugin. The caller
// holds mu.
func (f *Files) yield(ctx context.Context, c *fileClaim, has devicemanager.KubeletHolding) {
	next := f.endClaim(ctx, c)
	next.rivalSeen, next.kubelets = f.options.Clock.Now(), true
	f.save(ctx)
	if f.evaluated {
		blocked := maps.Clone(f.blocked)
		blocked[c.resource] = devicemanager.ErrConflict(c.resource, has)
		f.block(ctx, blocked)
	}
}

// block has plugin files not offer these resources, each for the reason, and offer all others. The
// caller holds mu.
func (f *Files) block(ctx context.Context, blocked map[types.ResourceName]error) {
	sameError := func(a, b error) bool { return a.Error() == b.Error() }
	if f.evaluated && maps.EqualFunc(blocked, f.blocked, sameError) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(blocked)) {
		if before := f.blocked[name]; before == nil || !sameError(before, blocked[name]) {
			klog.FromContext(ctx).Info("A plugin file does not offer a resource", logkey.Resource, name,
				logkey.Reason, blocked[name].Error())
		}
	}
	f.blocked, f.evaluated = blocked, true
	f.notify()
}

// hostedHolders returns a pod, as namespace/name, that holds a device of a plugin of the kubelet's
// API, by the resource.
func hostedHolders(allocations []grants.Allocation) map[types.ResourceName]string {
	pods := map[types.ResourceName]string{}
	for _, allocation := range allocations {
		for name := range allocation.Holds() {
			if d, ok := kubeletdevice.Parse(name); ok {
				pods[d.Resource] = allocation.Pod()
			}
		}
	}
	return pods
}

// check compares the claim on a resource with what the kubelet has, and returns why plugin files
// must not offer it now, or nil. holder is a pod that holds a device of a plugin of the kubelet's
// API, and hosted says that such a plugin has taken the resource over. The caller holds mu.
func (f *Files) check(
	ctx context.Context, name types.ResourceName, known map[types.ResourceName]devicemanager.KubeletHolding,
	holder string, hosted bool,
) error {
	has, remembered := known[name]
	c := f.claims[name]
	if c == nil && remembered {
		c = f.newClaim(name)
		c.rivalSeen = f.options.Clock.Now() // its plugin may be about to register again
	}
	if c != nil && known != nil {
		c.kubelets = has.Device != "" || has.Pod != ""
	}
	switch {
	case holder != "":
		f.endClaim(ctx, c)
		return fmt.Errorf("pod %s holds a device of %s by a device plugin that registered with kubecri, and a plugin "+
			"file has the same devices by other names: the file offers them when no pod holds one; delete these pods, "+
			"or keep one of the two plugins from this node", holder, name)
	case hosted:
		f.endClaim(ctx, c)
		return fmt.Errorf("a device plugin of %s that registered with kubecri serves it, and a plugin file has the "+
			"same devices by other names: the file offers them half a minute after that plugin has left; keep one of "+
			"the two from this node", name)
	case known == nil && c != nil && c.kubelets:
		return devicemanager.ErrConflict(name, has)
	case known == nil: // what is unknown stays as it is
	case !remembered:
		f.endClaim(ctx, c)
		delete(f.claims, name)
		return nil
	case has.Device != "":
		c = f.endClaim(ctx, c)
		c.rivalSeen = f.options.Clock.Now()
		return devicemanager.ErrConflict(name, has)
	case has.Pod != "":
		f.endClaim(ctx, c)
		return devicemanager.ErrConflict(name, has)
	case !c.taken && f.options.Clock.Since(c.rivalSeen) < devicemanager.RivalInterval:
		return devicemanager.ErrConflict(name, has)
	case !c.taken:
		klog.FromContext(ctx).Info("Taking over a resource that the kubelet remembers", logkey.Resource, name)
		c.taken = true
	}
	if c != nil && c.taken && !c.registered {
		return fmt.Errorf("%s is being registered with the kubelet, which counts it still; it is offered then", name)
	}
	return nil
}

// Holder returns a pod, as namespace/name, other than that of this UID, which holds a device of a
// plugin file that publishes the extended resource, or last did; empty if there is none.
func (f *Files) Holder(resource types.ResourceName, otherThan string) string {
	f.mu.Lock()
	devices := f.devices[resource]
	f.mu.Unlock()
	if len(devices) == 0 {
		return ""
	}
	for _, allocation := range f.options.Grants.List() {
		for name := range allocation.Holds() {
			isSame := func(device types.ResourceName) bool { return grants.SameResource(name, device) }
			if allocation.PodUID != otherThan && slices.ContainsFunc(devices, isSame) {
				return allocation.Pod()
			}
		}
	}
	return ""
}

// HostedHolder returns a pod, as namespace/name, other than that of this UID, which was granted a
// device of the extended resource by a plugin of the kubelet's API that registered here; empty if
// there is none. The kubelet does not know such devices. An adopted pod counts, too: the kubelet
// has forgotten its devices, or it is about to be removed from the grants.
func (f *Files) HostedHolder(resource types.ResourceName, otherThan string) string {
	for _, allocation := range f.options.Grants.List() {
		if allocation.PodUID == otherThan {
			continue
		}
		for name := range allocation.Holds() {
			if d, ok := kubeletdevice.Parse(name); ok && d.Resource == resource {
				return allocation.Pod()
			}
		}
	}
	return ""
}

// takenResources returns the resources that the kubelet is to have from this program, sorted.
func (f *Files) takenResources() []types.ResourceName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takenLocked()
}

// KubeletCounts reports whether the kubelet counts and publishes a resource of plugin files: it
// knows the resource.
func (f *Files) KubeletCounts(name types.ResourceName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims[name] != nil
}

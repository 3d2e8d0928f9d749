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

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// adoptTimeout is for the pods of a resource to be adopted and reported.
const adoptTimeout = 5 * time.Second

// Grants is the checkpoint of granted devices, of which an Adopter is the origin.
// *grants.Checkpoint implements it.
type Grants interface {
	// Reconcile reads the origin, too. An error may be that of the write, as IsUnsaved says; the
	// result counts then too.
	Reconcile(ctx context.Context) error
	// IsUnsaved reports whether the last write failed.
	IsUnsaved() bool
	// List returns all allocations.
	List() []grants.Allocation
}

// Holders has the pods that the node reports as holders of devices. *holders.Controller implements
// it.
type Holders interface {
	// Holders returns them, whether they are known, and a channel that is closed when this changes.
	Holders() (list []deviceinfo.Holder, known bool, changed <-chan struct{})
}

// Options are what a controller needs.
type Options struct {
	// KubeletDir is the directory in which plugins register with the kubelet, usually
	// kubeletstate.Dir.
	KubeletDir string
	// Manager has the device plugins. The controller watches the kubelet for it.
	Manager *devicemanager.Manager
	// Adopter is the origin of Grants.
	Adopter *Adopter
	Grants  Grants
	Holders Holders
	// Files, if set, has the resources of plugin files, which may be the kubelet's.
	Files *Files
}

// Controller takes over resources that have moved from the kubelet.
type Controller struct {
	Options
	running sync.WaitGroup

	mu     sync.Mutex // held while resources are taken over
	failed bool       // to adopt, the last time
}

// New returns a controller; call Run.
func New(options Options) *Controller { return &Controller{Options: options} }

// Run takes over resources until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	removeStaleSockets(ctx, c.KubeletDir)
	if c.Files != nil {
		c.running.Go(func() { c.Files.run(ctx, c) })
	}
	c.Manager.WatchKubelet(ctx, c.takeOver)
	c.running.Wait()
}

// takeOver takes over each resource whose plugin is here while the kubelet still remembers it.
// First the pods are adopted that hold devices of it: until that is done, it is not offered.
func (c *Controller) takeOver(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ofFiles := c.takenByFiles()
	c.register(ctx, c.Manager.Resume(ofFiles))
	if c.Files != nil {
		defer c.Files.update(ctx, c)
	}
	contested := c.Manager.Contest(ofFiles)
	withheld, err := c.adopt(ctx)
	if err != nil {
		if !c.failed {
			klog.FromContext(ctx).Error(err,
				"It is unknown which pods hold devices that the kubelet allocated; will retry", logkey.Resources,
				slices.Sorted(slices.Values(contested)))
		}
		c.failed = true
		c.Manager.Leave(contested)
		return
	}
	c.failed = false
	c.Manager.Withhold(c.withHeldByFiles(withheld))
	c.register(ctx, c.Manager.TakeOver(ctx, contested))
}

// withHeldByFiles returns what is withheld and all devices of resources of which pods hold devices
// by a plugin file, under other names: which ones these are is not known.
func (c *Controller) withHeldByFiles(withheld map[types.ResourceName]string) map[types.ResourceName]string {
	if c.Files == nil {
		return withheld
	}
	all := maps.Clone(withheld)
	states, _ := c.Manager.States()
	for _, state := range states {
		if state.Info == nil {
			continue
		}
		holder := c.Files.Holder(state.Resource, "")
		for name := range state.Info.Capacity {
			if holder == "" {
				break
			}
			if all == nil {
				all = map[types.ResourceName]string{}
			}
			all[name] = fmt.Sprintf("pod %s holds a device of %s by a plugin file, which has it by another name; "+
				"delete the pods that do", holder, state.Resource)
		}
	}
	return all
}

// takenByFiles returns whether the kubelet is to have a resource from this program in the place of
// a plugin file, as of now. The device manager calls it with its lock held, for which Files may
// wait.
func (c *Controller) takenByFiles() func(types.ResourceName) bool {
	if c.Files == nil {
		return func(types.ResourceName) bool { return false }
	}
	taken := c.Files.takenResources()
	return func(name types.ResourceName) bool { return slices.Contains(taken, name) }
}

// register registers a placeholder for each resource.
func (c *Controller) register(ctx context.Context, begun []*devicemanager.Takeover) {
	for _, takeover := range begun {
		c.place(ctx, takeover.Resource, takeover)
	}
}

// place registers a placeholder for a resource until it is claimed no more.
func (c *Controller) place(ctx context.Context, resource types.ResourceName, claimed claim) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Resource, resource)
	p := &placeholder{resource: resource, takeover: claimed, directory: c.KubeletDir, grants: c.Grants}
	c.running.Go(func() { p.run(klog.NewContext(ctx, logger)) })
}

// adopt adopts the pods that hold devices of resources which are taken over, and waits until the
// node reports them. It returns the devices whose holders are not certain. An error says that the
// holders are unknown.
func (c *Controller) adopt(ctx context.Context) (withheld map[types.ResourceName]string, err error) {
	if len(c.Manager.TakenOver()) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	// What cannot be written is known all the same; the file is tried again.
	if err := c.Grants.Reconcile(ctx); err != nil && !c.Grants.IsUnsaved() {
		return nil, err
	}
	return c.Adopter.Withheld(), c.awaitHolders(ctx)
}

// awaitHolders waits until the holders that the node reports have the adopted pods: only then the
// scheduler can know that their devices are not free.
func (c *Controller) awaitHolders(ctx context.Context) error {
	for {
		reported, known, changed := c.Holders.Holders()
		missing := slices.ContainsFunc(c.Grants.List(), func(a grants.Allocation) bool {
			isOf := func(h deviceinfo.Holder) bool { return string(h.UID) == a.PodUID }
			return a.Adopted && c.Adopter.pods.Active(a.PodUID) && !slices.ContainsFunc(reported, isOf)
		})
		if known && !missing {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("report the pods that hold devices which the kubelet allocated: %w", ctx.Err())
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Checkpoint has the node's granted allocations. All methods are safe for concurrent use.
type Checkpoint struct {
	file      *statefile.File
	runtime   Runtime
	pods      Pods
	inventory Inventory
	origin    Origin
	observer  Observer
	responses *ResponseCache
	key       *nodeKey // loaded when the file is read; who has changing may save it

	// reconciling holds one token, taken to compare the checkpoint with the runtime.
	reconciling chan struct{}
	// opened is closed when the file was read.
	opened chan struct{}
	// changing is held to replace allocations, while the file is written.
	changing sync.Mutex
	reported map[string]Reason // by container ID; belongs to who has changing

	// mu is held for moments only. Who has changing may take it, not the other way round.
	mu          sync.Mutex
	locked      *os.File               // holds the lock on the file; nil before the file was read
	allocations map[string]*Allocation // by pod UID; neither the map nor what it points at is ever changed
	complete    bool                   // it was compared with the runtime since the start
	corrupt     bool                   // the file could not be used
	recorded    bool                   // the file was there, and could be used
	unsaved     error                  // why the last write of the file failed, or nil
	changed     chan struct{}          // closed and replaced when allocations or complete change
}

// Pods knows the pods of this node. *pods.Registry implements it.
type Pods interface {
	// Active reports whether the API server has the pod and it has not ended, as far as this node
	// knows.
	Active(podUID string) bool
}

// Inventory is what the node has, as far as its plugins have reported. *plugins.Latest implements
// it.
type Inventory interface {
	// Grantable is a Capacity.
	Grantable(name types.ResourceName) (quantity int64, known bool)
}

// Origin knows devices that pods were allocated without this checkpoint.
type Origin interface {
	// Read returns what it knows now. An error says that it is unknown.
	Read() (Foreign, error)
}

// Foreign is what an Origin knew when it was read.
type Foreign interface {
	// Merge makes allocations, by pod UID, have what pods hold by the origin: it adds and removes
	// some, and replaces some by changed copies. pods are the runtime's, by UID.
	Merge(ctx context.Context, pods map[string]RuntimeState, allocations map[string]*Allocation)
}

// Observer is notified of findings. It must not block.
type Observer interface {
	// Found is called once for each container whose annotation does not count.
	Found(Finding)
}

// Options are what a checkpoint needs.
type Options struct {
	// Path is the file, whose directory must exist.
	Path string
	// Boot identifies this boot of the machine, see [Boot]; if it is empty, no response counts that
	// another process cached.
	Boot string
	// Node is this node's name.
	Node string
	// Runtime is the container runtime.
	Runtime Runtime
	// Pods are those of the API server.
	Pods Pods
	// Inventory is what allocations that come back from the runtime are checked by; nil for one of
	// which nothing is known.
	Inventory Inventory
	// Origin, if set, has allocations that become a part of the checkpoint.
	Origin Origin
	// Observer, if set, is notified of findings.
	Observer Observer
}

// New returns the checkpoint. The file is locked and read when the checkpoint is first compared
// with the runtime; see Close.
func New(options Options) *Checkpoint {
	c := &Checkpoint{
		file: fileAt(options.Path), runtime: options.Runtime, pods: options.Pods,
		inventory: options.Inventory, origin: options.Origin, observer: options.Observer,
		key:         newNodeKey(filepath.Dir(options.Path), options.Node),
		reconciling: make(chan struct{}, 1), opened: make(chan struct{}), allocations: map[string]*Allocation{},
		reported: map[string]Reason{}, changed: make(chan struct{}),
	}
	c.responses = newResponseCache(filepath.Dir(options.Path), cmp.Or(options.Boot, rand.Text()), c)
	return c
}

// Close lets another process have the file. The checkpoint must not be used any more.
func (c *Checkpoint) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locked == nil {
		return nil
	}
	return c.locked.Close()
}

// open locks and reads the files, once. The caller holds the token of reconciling.
func (c *Checkpoint) open(ctx context.Context) error {
	c.mu.Lock()
	opened := c.locked != nil
	c.mu.Unlock()
	if opened {
		return nil
	}
	locked, err := lock(ctx, c.file.Path)
	if err != nil {
		return err
	}
	var list []Allocation
	var legacy map[string]responses
	err = c.file.Load(func(body []byte) (err error) {
		if list, err = decode(body); err == nil {
			legacy, err = decodeLegacyResponses(body, c.responses.boot)
		}
		return err
	})
	corrupt, missing := errors.Is(err, statefile.ErrCorrupt), errors.Is(err, fs.ErrNotExist)
	switch {
	case corrupt:
		list, legacy = nil, nil
		klog.FromContext(ctx).
			Error(
				err, "The checkpoint of granted devices cannot be used; it is made again from the runtime's containers",
			)
	case err != nil && !missing:
		err = fmt.Errorf("read the checkpoint of granted devices, without which the holders of devices are not "+
			"known: %w; if that stays, move the file away, and it is made again from the runtime's containers", err)
		return errors.Join(err, locked.Close())
	}
	if err := c.key.load(ctx); err != nil {
		return errors.Join(err, locked.Close())
	}
	err = c.responses.load(ctx, legacy)
	if err == nil && len(legacy) > 0 {
		err = c.file.Save(content{list}) // without the responses, which would count as the newer ones again
	}
	if err != nil {
		klog.FromContext(ctx).
			Error(err, "The cached responses of device plugins cannot be moved to a file of their own")
	}
	recorded := !corrupt && !missing
	read := make(map[string]*Allocation, len(list))
	for _, a := range list {
		read[a.PodUID] = &a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked, c.corrupt, c.recorded = locked, corrupt, recorded
	c.set(read, c.complete)
	close(c.opened)
	return nil
}

// Opened returns a channel that is closed when the file was read, or found to be corrupt or
// missing.
func (c *Checkpoint) Opened() <-chan struct{} { return c.opened }

// KeySince returns when the key was made by which containers carry what they were granted, which is
// when kubecri came to this node first. It is the zero time before Opened.
func (c *Checkpoint) KeySince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locked == nil {
		return time.Time{}
	}
	return c.key.Since
}

// Responses returns the cached responses of device plugins to the pods in the checkpoint.
func (c *Checkpoint) Responses() *ResponseCache { return c.responses }

// WasCorrupt reports whether there was a file that could not be used, as far as it was opened.
func (c *Checkpoint) WasCorrupt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.corrupt
}

// Has reports whether the checkpoint has the pod, complete or not.
func (c *Checkpoint) Has(podUID string) bool {
	_, ok := c.current()[podUID]
	return ok
}

// Granted returns what was granted to the pod before, if anything.
func (c *Checkpoint) Granted(ctx context.Context, podUID string) (granted Allocation, ok bool, err error) {
	if err := c.ensureComplete(ctx); err != nil {
		return Allocation{}, false, err
	}
	if a, ok := c.current()[podUID]; ok {
		return *a, true, nil
	}
	return Allocation{}, false, nil
}

// errNotRecorded is why the file does not say what was granted.
var errNotRecorded = errors.New("the checkpoint of granted devices was not read, or was lost")

// Recorded returns what was granted to the pod before by the file alone. That has all grants, and
// of pods that have devices from the kubelet those that were adopted before. Recorded does not wait
// until the checkpoint was compared with the runtime.
func (c *Checkpoint) Recorded(podUID string) (granted Allocation, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.recorded && !c.complete {
		return Allocation{}, false, errNotRecorded
	}
	if a, ok := c.allocations[podUID]; ok {
		return *a, true, nil
	}
	return Allocation{}, false, nil
}

// A pod that was deleted without grace is gone from the API server a moment before its container
// has ended. The next pod with its device waits that moment here: the kubelet would try again only
// ten seconds after a refusal.
const (
	leavingTimeout  = 5 * time.Second
	leavingInterval = 100 * time.Millisecond
)

// Grant grants the pod the wanted allocation, unless the pod was granted one before: then it
// returns that one. Of one that is partial, what containers have stays, and the others are granted
// theirs. Nothing is granted before it is on disk. An error that is a *Conflict says that
// other pods hold it; holders whose pods have left the API server are waited for, up to
// leavingTimeout.
func (c *Checkpoint) Grant(ctx context.Context, wanted Allocation, capacity Capacity) (Allocation, error) {
	if err := c.ensureComplete(ctx); err != nil {
		return Allocation{}, err
	}
	wanted.Since, wanted.Signed = time.Now().UTC(), true
	granted, err := c.grant(&wanted, capacity)
	limit := time.NewTimer(leavingTimeout)
	defer limit.Stop()
	for again := time.Duration(0); ; again = leavingInterval {
		var conflict *Conflict
		if !errors.As(err, &conflict) || again > 0 && !c.leaving(conflict) {
			return granted, err
		}
		select {
		case <-time.After(again):
		case <-limit.C:
			return granted, err
		case <-ctx.Done():
			return granted, err
		}
		if err := c.Reconcile(ctx); err != nil {
			return Allocation{}, err
		}
		granted, err = c.grant(&wanted, capacity)
	}
}

// leaving reports whether all holders are pods that the API server has no more.
func (c *Checkpoint) leaving(conflict *Conflict) bool {
	return len(conflict.uids) > 0 && !slices.ContainsFunc(conflict.uids, c.pods.Active)
}

func (c *Checkpoint) grant(wanted *Allocation, capacity Capacity) (Allocation, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	next := maps.Clone(c.current())
	granted, requested := wanted, wanted.Holds()
	if before, ok := next[wanted.PodUID]; ok {
		if !before.Partial {
			return *before, nil
		}
		granted = complete(before, granted)
		requested = heldBy(granted, before.Lacks)
		delete(next, wanted.PodUID)
	}
	if conflict := FindConflict(requested, next, capacity); conflict != nil {
		return Allocation{}, conflict
	}
	next[wanted.PodUID] = granted
	failpoint.Reach(failpoint.Granting)
	if err := c.replace(next); err != nil {
		return Allocation{}, err
	}
	failpoint.Reach(failpoint.Granted)
	return *granted, nil
}

// Follow returns the allocations, sorted by pod; whether they are known to be all; and a channel
// that is closed when any of this changes.
func (c *Checkpoint) Follow() (list []Allocation, complete bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sorted(c.allocations), c.complete, c.changed
}

// List returns all allocations, sorted by pod.
func (c *Checkpoint) List() []Allocation { return sorted(c.current()) }

// Check returns an error while the checkpoint is not known to be complete, and while it cannot be
// written.
func (c *Checkpoint) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return errors.New("the checkpoint of granted devices was not compared with the runtime yet")
	}
	return c.unsaved
}

// IsUnsaved reports whether the last write of the file failed. Then nothing is missing in it that
// was granted, and nothing is granted until it can be written, which every grant and every
// comparison with the runtime tries.
func (c *Checkpoint) IsUnsaved() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved != nil
}

// current returns the allocations by pod UID, which must not be changed.
func (c *Checkpoint) current() map[string]*Allocation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allocations
}

// replace puts next on disk and then in place. The caller holds changing.
func (c *Checkpoint) replace(next map[string]*Allocation) error {
	err := c.key.save()
	if err == nil {
		err = c.file.Save(content{sorted(next)})
	}
	if err != nil {
		err = fmt.Errorf("write the checkpoint of granted devices, without which no device is granted: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsaved = err
	if err == nil {
		c.set(next, c.complete)
	}
	return err
}

// set puts allocations in place, and wakes who follows. The caller holds mu.
func (c *Checkpoint) set(allocations map[string]*Allocation, complete bool) {
	if complete == c.complete && maps.Equal(allocations, c.allocations) {
		return
	}
	c.allocations, c.complete = allocations, complete
	close(c.changed)
	c.changed = make(chan struct{})
}

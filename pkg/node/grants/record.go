// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// Record is the node's record of grants. All methods are safe for concurrent use.
type Record struct {
	path    string
	boot    string
	runtime Runtime
	active  func(podUID string) bool
	now     func() time.Time

	// reconciling holds one token, taken by whoever compares the record with the runtime.
	reconciling chan struct{}
	// opened is closed when the file was read.
	opened chan struct{}
	// changing is held by whoever replaces grants, while the file is written.
	changing sync.Mutex

	// mu is held for moments only. Who has changing may take it, not the other way round.
	mu       sync.Mutex
	locked   *os.File          // holds the lock on the file; nil before the file was read
	grants   map[string]*Grant // by pod UID; neither the map nor what it points at is ever changed
	complete bool              // the runtime was asked since the start
	damaged  bool              // the file could not be used
	unsaved  error             // why the file could not be written the last time, or nil if it could
}

// New returns the record in the file at path, whose folder must exist. The file is locked and read when the record is first
// compared with the runtime; see Close. boot is the present boot of the machine, see Boot; if it is not known, empty, no answer
// counts that another process kept. active says whether the API server has the pod and it is not over, as far as this node
// knows.
func New(path, boot string, runtime Runtime, active func(podUID string) bool) *Record {
	if boot == "" {
		boot = rand.Text()
	}
	return &Record{
		path: path, boot: boot, runtime: runtime, active: active, now: time.Now,
		reconciling: make(chan struct{}, 1),
		opened:      make(chan struct{}),
		grants:      map[string]*Grant{},
	}
}

// Close lets another process have the file. The record must not be used any more.
func (r *Record) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locked == nil {
		return nil
	}
	return r.locked.Close()
}

// open locks and reads the file, once. A file that cannot be used is set aside beside it and logged: what it had comes back
// from the runtime. The caller holds the token of reconciling.
func (r *Record) open(ctx context.Context) error {
	r.mu.Lock()
	opened := r.locked != nil
	r.mu.Unlock()
	if opened {
		return nil
	}
	locked, err := lock(ctx, r.path)
	if err != nil {
		return err
	}
	grants, err := Read(r.path)
	damaged := err != nil && !errors.Is(err, fs.ErrNotExist)
	if damaged {
		aside := fmt.Sprintf("%s.damaged-%d", r.path, r.now().UnixNano())
		klog.FromContext(ctx).Error(errors.Join(err, os.Rename(r.path, aside)),
			"The record of grants cannot be used; it is made anew from the runtime's containers", "aside", aside)
	}
	read := make(map[string]*Grant, len(grants))
	for _, grant := range grants {
		read[grant.PodUID] = &grant
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locked, r.damaged, r.grants = locked, damaged, read
	close(r.opened)
	return nil
}

// Opened returns a channel that is closed when the file was read, or found to be damaged or missing.
func (r *Record) Opened() <-chan struct{} { return r.opened }

// WasDamaged reports whether there was a file that could not be used, as far as it was opened.
func (r *Record) WasDamaged() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.damaged
}

// Has reports whether the record has the pod, complete or not.
func (r *Record) Has(podUID string) bool {
	_, ok := r.current()[podUID]
	return ok
}

// Pinned returns what the pod was given on this node before, if anything.
func (r *Record) Pinned(ctx context.Context, podUID string) (grant Grant, pinned bool, err error) {
	if err := r.ensureComplete(ctx); err != nil {
		return Grant{}, false, err
	}
	if g, ok := r.current()[podUID]; ok {
		return *g, true, nil
	}
	return Grant{}, false, nil
}

// A pod that was deleted without grace is gone from the API server a moment before its container has ended. Who gets its
// device waits that moment here: the kubelet would try again ten seconds after a refusal.
const (
	leavingLimit    = 5 * time.Second
	leavingInterval = 100 * time.Millisecond
)

// Pin grants the pod what wanted says, unless the pod was given something before: that is what is returned then. An error
// that is a *Conflict says that others hold it; nothing is granted before it is on disk. Holders whose pods are gone already
// are waited for, for leavingLimit at most.
func (r *Record) Pin(ctx context.Context, wanted Grant, has Has) (Grant, error) {
	if err := r.ensureComplete(ctx); err != nil {
		return Grant{}, err
	}
	wanted.Since = r.now().UTC()
	granted, err := r.pin(&wanted, has)
	limit := time.NewTimer(leavingLimit)
	defer limit.Stop()
	for again := time.Duration(0); ; again = leavingInterval {
		var conflict *Conflict
		if !errors.As(err, &conflict) || again > 0 && !r.leaving(conflict) {
			return granted, err
		}
		select {
		case <-time.After(again):
		case <-limit.C:
			return granted, err
		case <-ctx.Done():
			return granted, err
		}
		if err := r.Reconcile(ctx); err != nil {
			return Grant{}, err
		}
		granted, err = r.pin(&wanted, has)
	}
}

// leaving reports whether all who stand in the way are pods that the API server has no more.
func (r *Record) leaving(c *Conflict) bool {
	return len(c.uids) > 0 && !slices.ContainsFunc(c.uids, r.active)
}

func (r *Record) pin(wanted *Grant, has Has) (Grant, error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	now := r.current()
	if g, ok := now[wanted.PodUID]; ok {
		return *g, nil
	}
	if c := conflict(wanted, now, has); c != nil {
		return Grant{}, c
	}
	next := maps.Clone(now)
	next[wanted.PodUID] = wanted
	failpoint.Reach(failpoint.Granting)
	if err := r.replace(next); err != nil {
		return Grant{}, err
	}
	failpoint.Reach(failpoint.Granted)
	return *wanted, nil
}

// List returns all grants, sorted by pod.
func (r *Record) List() []Grant { return sorted(r.current()) }

// Check returns an error while the record is not known to be complete, and while it cannot be written.
func (r *Record) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.complete {
		return errors.New("the record of grants was not compared with the runtime yet")
	}
	return r.unsaved
}

// IsUnsaved reports whether the file could not be written the last time. Then it lacks nothing that anybody was told of, and
// nobody is granted anything until it can be written; that is tried with each grant and each comparison with the runtime.
func (r *Record) IsUnsaved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unsaved != nil
}

// current returns the grants by pod UID, which must not be changed.
func (r *Record) current() map[string]*Grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants
}

// replace puts next on disk and then in place. The caller holds changing.
func (r *Record) replace(next map[string]*Grant) error {
	err := write(r.path, sorted(next))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved = err
	if err == nil {
		r.grants = next
	}
	return err
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package holders finds the pods that hold devices of this node of which the scheduler knows from
// the node alone. These are adopted pods, which the kubelet gave devices to; and, where seals are
// looked at, those that carry no seal that verifies: they were granted before there were seals, or
// their key was taken away; or somebody wrote back an allocation of before their devices were
// replaced.
package holders

import (
	"context"
	"reflect"
	"sync"

	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Pods knows the pods of this node. *pods.Registry does.
type Pods interface {
	// Get returns what is known of the pod, without waiting.
	Get(uid string) (pod pods.Pod, known bool)
	// Active reports whether the API server has the pod and it has not ended.
	Active(uid string) bool
	// Check returns an error until all pods of the node are known.
	Check() error
	// Changed returns a channel that is closed when any of this changes.
	Changed() <-chan struct{}
}

// Grants are the node's granted allocations. *grants.Checkpoint has them.
type Grants interface {
	// Follow returns the allocations, whether they are known to be all, and a channel that is
	// closed when any of this changes.
	Follow() (list []grants.Allocation, complete bool, changed <-chan struct{})
}

// Keys knows the keys by which seals are verified. *seals.Keys does.
type Keys interface {
	// Verifier returns the verifier with all keys that are known now, and a channel that is closed
	// when there is another one. While no key is known, the error says why.
	Verifier() (verifier *seal.Verifier, changed <-chan struct{}, err error)
}

// Follower follows what the node knows of its pods, and finds the holders among them. All methods
// are safe for concurrent use.
type Follower struct {
	nodeName string
	keys     Keys // nil where seals are not looked at
	pods     Pods
	grants   Grants

	mu      sync.Mutex
	list    []deviceinfo.Holder // never changed
	known   bool
	changed chan struct{} // closed and replaced when list or known changes

	answers map[string]answer // used by Run only, by pod UID
}

// answer is the result of a verification, with everything that it depends on.
type answer struct {
	verifier         *seal.Verifier
	allocation, seal string
	valid            bool
	generation       int64 // of a valid seal
}

// New returns a follower that knows no holders yet; call Run. keys is nil where seals are not
// looked at.
func New(nodeName string, keys Keys, pods Pods, grants Grants) *Follower {
	return &Follower{
		nodeName: nodeName, keys: keys, pods: pods, grants: grants, changed: make(chan struct{}),
		answers: map[string]answer{},
	}
}

// Holders returns the pods, whether they are known, and a channel that is closed when any of this
// changes. They are not known until the node's keys, pods and grants are. The list must not be
// changed.
func (f *Follower) Holders() (list []deviceinfo.Holder, known bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, f.known, f.changed
}

// Run follows keys, pods and grants until ctx is done.
func (f *Follower) Run(ctx context.Context) {
	for {
		podsChanged := f.pods.Changed()
		granted, complete, grantsChanged := f.grants.Follow()
		var verifier *seal.Verifier
		var keysChanged <-chan struct{}
		var err error
		if f.keys != nil {
			verifier, keysChanged, err = f.keys.Verifier()
		}
		if err == nil && complete && f.pods.Check() == nil {
			f.set(f.unsealed(verifier, granted))
		}
		select {
		case <-podsChanged:
		case <-grantsChanged:
		case <-keysChanged:
		case <-ctx.Done():
			return
		}
	}
}

// unsealed returns those pods of the granted ones that carry no valid seal and have not ended.
// Without a verifier, only adopted ones are without.
func (f *Follower) unsealed(verifier *seal.Verifier, granted []grants.Allocation) []deviceinfo.Holder {
	var list []deviceinfo.Holder
	answers := make(map[string]answer, len(granted))
	for i := range granted {
		uid := granted[i].PodUID
		pod, _ := f.pods.Get(uid)
		if !f.pods.Active(uid) {
			continue
		}
		now := answer{verifier: verifier, allocation: pod.Allocation, seal: pod.Seal}
		if before, known := f.answers[uid]; known && before.verifier == verifier &&
			before.allocation == now.allocation && before.seal == now.seal {
			now.valid, now.generation = before.valid, before.generation
		} else if now.valid = verifier == nil; !now.valid {
			now.generation, now.valid = f.verify(verifier, uid, pod)
		}
		answers[uid] = now
		// An allocation of before, which somebody has written back, is not what the pod holds.
		old := verifier != nil && now.generation < granted[i].Generation
		if now.valid && !old && !granted[i].Adopted {
			continue
		}
		holder := deviceinfo.HolderOf(apitypes.UID(uid), pod.Namespace, pod.Name, granted[i].PodInfo)
		holder.Generation = granted[i].Generation
		if len(holder.Containers) > 0 {
			list = append(list, holder)
		}
	}
	f.answers = answers
	return list
}

// verify reports whether the pod carries a valid seal of the allocation in its annotation, and of
// which generation.
func (f *Follower) verify(verifier *seal.Verifier, uid string, pod pods.Pod) (generation int64, valid bool) {
	if pod.Seal == "" {
		return 0, false
	}
	info, err := deviceinfo.DecodePod(pod.Allocation)
	if err != nil {
		return 0, false
	}
	generation, err = verifier.Generation(pod.Seal, seal.Decision{
		UID: apitypes.UID(uid), Namespace: pod.Namespace, Name: pod.Name, Node: f.nodeName,
		Allocation: seal.DigestOf(info),
	})
	return generation, err == nil
}

func (f *Follower) set(list []deviceinfo.Holder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known && reflect.DeepEqual(list, f.list) {
		return
	}
	f.list, f.known = list, true
	close(f.changed)
	f.changed = make(chan struct{})
}

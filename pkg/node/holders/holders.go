// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package holders finds the pods whose devices the scheduler knows only from this node. These are
// adopted pods, to which the kubelet allocated devices; and, with seals, pods without a valid seal:
// their grants are older than seals, their key was removed, or a client has restored an allocation
// from before a replacement of their devices.
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

// Pods knows the pods of this node. *pods.Registry implements it.
type Pods interface {
	// Get returns the data of the pod, without waiting.
	Get(uid string) (pod pods.Pod, known bool)
	// Active reports whether the API server has the pod and it has not ended.
	Active(uid string) bool
	// Check returns an error until all pods of the node are known.
	Check() error
	// Changed returns a channel that is closed when any of this changes.
	Changed() <-chan struct{}
}

// Grants has the node's granted allocations. *grants.Checkpoint implements it.
type Grants interface {
	// Follow returns the allocations, whether the list is complete, and a channel that is closed
	// when any of this changes.
	Follow() (list []grants.Allocation, complete bool, changed <-chan struct{})
}

// Keys knows the keys for verifying seals. *seals.Keys implements it.
type Keys interface {
	// Verifier returns the verifier with all current keys, and a channel that is closed when it
	// changes. Without a key, the error says why.
	Verifier() (verifier *seal.Verifier, changed <-chan struct{}, err error)
}

// Controller finds the holders among the node's pods, and follows changes. All methods are safe for
// concurrent use.
type Controller struct {
	nodeName string
	keys     Keys // nil without seals
	pods     Pods
	grants   Grants

	mu      sync.Mutex
	list    []deviceinfo.Holder // immutable
	known   bool
	changed chan struct{} // closed and replaced when list or known changes

	answers map[string]answer // by pod UID; only Run uses it
}

// answer is the result of a verification, with all its inputs.
type answer struct {
	verifier         *seal.Verifier
	allocation, seal string
	valid            bool
	generation       int64 // of a valid seal
}

// New returns a controller without holders; call Run. keys is nil without seals.
func New(nodeName string, keys Keys, pods Pods, grants Grants) *Controller {
	return &Controller{
		nodeName: nodeName, keys: keys, pods: pods, grants: grants, changed: make(chan struct{}),
		answers: map[string]answer{},
	}
}

// Holders returns the pods, whether they are known, and a channel that is closed when any of this
// changes. They are unknown until the node's keys, pods and grants are known. The caller must not
// change the list.
func (f *Controller) Holders() (list []deviceinfo.Holder, known bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, f.known, f.changed
}

// Run follows changes of keys, pods and grants until ctx is done.
func (f *Controller) Run(ctx context.Context) {
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

// unsealed returns the pods with grants that have no valid seal and have not ended. Without a
// verifier, these are the adopted ones only.
func (f *Controller) unsealed(verifier *seal.Verifier, granted []grants.Allocation) []deviceinfo.Holder {
	var list []deviceinfo.Holder
	answers := make(map[string]answer, len(granted))
	for i := range granted {
		uid := granted[i].PodUID
		pod, _ := f.pods.Get(uid)
		if !f.pods.Active(uid) {
			continue
		}
		now := answer{verifier: verifier, allocation: pod.Allocation, seal: pod.Seal}
		if last, known := f.answers[uid]; known && last.verifier == verifier &&
			last.allocation == now.allocation && last.seal == now.seal {
			now.valid, now.generation = last.valid, last.generation
		} else if now.valid = verifier == nil; !now.valid {
			now.generation, now.valid = f.verify(verifier, uid, pod)
		}
		answers[uid] = now
		// A restored earlier allocation does not have the devices that the pod holds.
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

// verify reports whether the pod has a valid seal of the allocation in its annotation, and the
// seal's generation.
func (f *Controller) verify(verifier *seal.Verifier, uid string, pod pods.Pod) (generation int64, valid bool) {
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

func (f *Controller) set(list []deviceinfo.Holder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known && reflect.DeepEqual(list, f.list) {
		return
	}
	f.list, f.known = list, true
	close(f.changed)
	f.changed = make(chan struct{})
}

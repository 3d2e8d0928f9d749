// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seals

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

// Holders finds the pods that hold devices of this node of which the scheduler knows from the node
// alone. These are adopted pods, which the kubelet gave devices to; and, where seals are looked at,
// those that carry no seal that verifies: they were granted before there were seals, or their key
// was taken away. All methods are safe for concurrent use.
type Holders struct {
	nodeName string
	keys     *Keys // nil where seals are not looked at
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
}

// NewHolders returns holders of which none is known yet; call Run. keys is nil where seals are not
// looked at.
func NewHolders(nodeName string, keys *Keys, pods Pods, grants Grants) *Holders {
	return &Holders{
		nodeName: nodeName, keys: keys, pods: pods, grants: grants, changed: make(chan struct{}),
		answers: map[string]answer{},
	}
}

// Holders returns the pods, whether they are known, and a channel that is closed when any of this
// changes. They are not known until the node's keys, pods and grants are. The list must not be
// changed.
func (h *Holders) Holders() (list []deviceinfo.Holder, known bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list, h.known, h.changed
}

// Run follows keys, pods and grants until ctx is done.
func (h *Holders) Run(ctx context.Context) {
	for {
		podsChanged := h.pods.Changed()
		granted, complete, grantsChanged := h.grants.Follow()
		var verifier *seal.Verifier
		var keysChanged <-chan struct{}
		var err error
		if h.keys != nil {
			verifier, keysChanged, err = h.keys.Verifier()
		}
		if err == nil && complete && h.pods.Check() == nil {
			h.set(h.unsealed(verifier, granted))
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
func (h *Holders) unsealed(verifier *seal.Verifier, granted []grants.Allocation) []deviceinfo.Holder {
	var list []deviceinfo.Holder
	answers := make(map[string]answer, len(granted))
	for i := range granted {
		uid := granted[i].PodUID
		pod, _ := h.pods.Get(uid)
		if !h.pods.Active(uid) {
			continue
		}
		now := answer{verifier: verifier, allocation: pod.Allocation, seal: pod.Seal}
		if before, known := h.answers[uid]; known && before.verifier == verifier &&
			before.allocation == now.allocation && before.seal == now.seal {
			now.valid = before.valid
		} else {
			now.valid = verifier == nil || h.valid(verifier, uid, pod)
		}
		answers[uid] = now
		if now.valid && !granted[i].Adopted {
			continue
		}
		holder := deviceinfo.HolderOf(apitypes.UID(uid), pod.Namespace, pod.Name, granted[i].PodInfo)
		if len(holder.Containers) > 0 {
			list = append(list, holder)
		}
	}
	h.answers = answers
	return list
}

// valid reports whether the pod carries a valid seal of the allocation in its annotation.
func (h *Holders) valid(verifier *seal.Verifier, uid string, pod pods.Pod) bool {
	if pod.Seal == "" {
		return false
	}
	info, err := deviceinfo.DecodePod(pod.Allocation)
	if err != nil {
		return false
	}
	return verifier.Verify(pod.Seal, seal.Decision{
		UID: apitypes.UID(uid), Namespace: pod.Namespace, Name: pod.Name, Node: h.nodeName,
		Allocation: seal.DigestOf(info),
	}) == nil
}

func (h *Holders) set(list []deviceinfo.Holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known && reflect.DeepEqual(list, h.list) {
		return
	}
	h.list, h.known = list, true
	close(h.changed)
	h.changed = make(chan struct{})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
)

// reasons gives nodes with the same kind of shortage the same text, that of the nearest of them:
// upstream groups the nodes of an event by the texts of their statuses. The text is made when it is
// read, after all nodes are filtered.
type reasons struct {
	holders *holders
	// outer are those of the cycle, for those of its simulations.
	outer *reasons

	mu        sync.Mutex
	nearest   map[string]*shortage // by kind
	simulated *reasons
}

// shortage is the shortage of a node, as an error whose text is that of all nodes of its kind.
type shortage struct {
	all  *reasons
	node string
	none *allocator.NoAllocation
}

func newReasons(h *holders) *reasons { return &reasons{holders: h, nearest: map[string]*shortage{}} }

// simulation returns the reasons that all simulations of the cycle share. They do not count for the
// nodes of the cycle itself.
func (r *reasons) simulation() *reasons {
	if r.outer != nil {
		return r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.simulated == nil {
		r.simulated = newReasons(r.holders)
		r.simulated.outer = r
	}
	return r.simulated
}

// status returns the status of a node without allocation.
func (r *reasons) status(code fwk.Code, node string, none *allocator.NoAllocation) *fwk.Status {
	s, kind := &shortage{r, node, none}, none.Kind()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nearest[kind] = s.nearerOf(r.nearest[kind])
	return fwk.NewStatus(code).WithError(s)
}

// nearerOf returns the one of two shortages whose node is nearer to what the pod needs; other may
// be nil.
func (s *shortage) nearerOf(other *shortage) *shortage {
	if other == nil || s.none.Nearer(other.none) || !other.none.Nearer(s.none) && s.node < other.node {
		return s
	}
	return other
}

// Error returns what all nodes of the kind report at this moment.
func (s *shortage) Error() string {
	best, kind := s, s.none.Kind()
	for r := s.all; r != nil; r = r.outer {
		r.mu.Lock()
		best = best.nearerOf(r.nearest[kind])
		r.mu.Unlock()
	}
	return best.none.Text(s.all.holders)
}

// namedHolders is how many claims a text names.
const namedHolders = 3

// holders are the claims that hold devices, as those see them who may read one namespace. It is
// safe for concurrent use.
type holders struct {
	manager   *manager
	namespace string
	ours      sets.Set[structured.DeviceID] // devices that are KubeDevice's

	once sync.Once
	of   map[structured.DeviceID]holder
}

type holder struct{ namespace, name string }

// Describe names the claims of the namespace that hold some of these devices, and counts the
// others. Those count that are in flight.
func (h *holders) Describe(devices []structured.DeviceID) string {
	h.once.Do(h.load)
	all := sets.New[holder]()
	ours := 0
	for _, id := range devices {
		if by, known := h.of[id]; known {
			all.Insert(by)
		} else if h.ours.Has(id) {
			ours++
		}
	}
	var own []string
	others := 0
	for by := range all {
		if by.namespace == h.namespace {
			own = append(own, by.name)
		} else {
			others++
		}
	}
	slices.Sort(own)
	var parts []string
	if len(own) > 0 {
		text := claimsOf(len(own)) + " " + strings.Join(own[:min(len(own), namedHolders)], ", ")
		if more := len(own) - namedHolders; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text)
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%d %s of other namespaces", others, claimsOf(others)))
	}
	if ours > 0 {
		parts = append(parts, fmt.Sprintf("KubeDevice, which allocates %d of them itself", ours))
	}
	return strings.Join(parts, " and ")
}

func claimsOf(n int) string {
	if n == 1 {
		return "claim"
	}
	return "claims"
}

func (h *holders) load() {
	h.of = map[structured.DeviceID]holder{}
	claims, err := h.manager.ResourceClaims().List()
	if err != nil {
		return // a text without holders
	}
	for _, claim := range claims {
		allocation := claim.Status.Allocation
		if pending := h.manager.ResourceClaims().GetPendingAllocation(claim.UID); pending != nil {
			allocation = pending
		}
		for id := range devicesOf(allocation, nil) {
			h.of[id] = holder{claim.Namespace, claim.Name}
		}
	}
}

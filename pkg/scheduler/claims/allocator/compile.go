// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/selector"
)

// mostClaims bounds the claims of one pod: they are bits of a number.
const mostClaims = 64

// Reason says why a pod or a node is left to upstream's allocator. It is a label of a metric.
type Reason string

// The reasons that this package has.
const (
	// ReasonFeature is a feature of a claim that is not modelled.
	ReasonFeature Reason = "claim_feature"
	// ReasonPool is a device that fits, in a pool with a feature that is not modelled.
	ReasonPool Reason = "pool_feature"
	// ReasonError is what upstream's allocator returns an error for, such as a selector that fails.
	ReasonError Reason = "error"
	// ReasonBudget is a search that took too many steps.
	ReasonBudget Reason = "budget"
)

// ErrNotModelled says that only upstream's allocator can decide.
type ErrNotModelled struct {
	Reason Reason
	Text   string
}

// Error implements error.
func (e *ErrNotModelled) Error() string { return e.Text }

// NotModelled returns an error that says that only upstream's allocator can decide.
func NotModelled(reason Reason, format string, args ...any) error {
	return &ErrNotModelled{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// Classes finds device classes.
type Classes interface {
	Get(name string) (*resourceapi.DeviceClass, error)
}

// Options are how an allocator works.
type Options struct {
	// Features are those of upstream's allocator.
	Features structured.Features
	// Levels are attributes by whose values devices are grouped, the closest first.
	Levels []resourceapi.FullyQualifiedName
}

// Request is what the claims of a pod want together. It is read only and safe for concurrent use.
type Request struct {
	options Options
	claims  []string // their names
	// slots are the requests of all claims, in the order in which they are served.
	slots []slot
	// constraints are those of all claims.
	constraints []constraint
	// constrainedAll says that a constraint concerns a request for all devices.
	constrainedAll bool
}

// slot is one request.
type slot struct {
	claim        int // in Request.claims
	request      int // in the claim
	name         string
	alternatives []alternative
	first        bool // whether it has alternatives, of which one is taken
}

// alternative is a request without alternatives, or one of them.
type alternative struct {
	name  string // "" if there are no alternatives
	count int    // of devices; not used with all
	all   bool
	admin bool
	class string
	// selectors are those of the class, then those of the request.
	selectors   []*selector.Expression
	ofClass     int // selectors of the class
	tolerations []resourceapi.DeviceToleration
	constraints []int // in Request.constraints
}

// constraint is a constraint of a claim.
type constraint struct {
	attribute resourceapi.FullyQualifiedName
	distinct  bool
}

// Compile returns what claims want, which have no allocation yet. An error that is not
// *ErrNotModelled is that of a class.
func Compile(
	claims []*resourceapi.ResourceClaim, classes Classes, selectors *selector.Cache, options Options,
) (*Request, error) {
	if len(claims) > mostClaims {
		return nil, NotModelled(ReasonFeature, "there are more than %d claims", mostClaims)
	}
	r := &Request{options: options}
	for c, claim := range claims {
		r.claims = append(r.claims, claim.Name)
		before := len(r.constraints)
		for _, found := range claim.Spec.Devices.Constraints {
			switch {
			case found.MatchAttribute != nil:
				r.constraints = append(r.constraints, constraint{attribute: *found.MatchAttribute})
			case found.DistinctAttribute != nil && options.Features.ConsumableCapacity:
				r.constraints = append(r.constraints, constraint{attribute: *found.DistinctAttribute, distinct: true})
			default:
				return nil, NotModelled(ReasonFeature, "claim %q has a constraint of an unknown kind", claim.Name)
			}
		}
		for i := range claim.Spec.Devices.Requests {
			s, err := compileSlot(&claim.Spec.Devices.Requests[i], classes, selectors)
			if err != nil {
				return nil, fmt.Errorf("claim %q: %w", claim.Name, err)
			}
			s.claim, s.request = c, i
			for a := range s.alternatives {
				s.alternatives[a].constraints = constraintsOf(claim, before, s.name, s.alternatives[a].name)
				r.constrainedAll = r.constrainedAll ||
					s.alternatives[a].all && len(s.alternatives[a].constraints) > 0
			}
			r.slots = append(r.slots, s)
		}
	}
	return r, nil
}

// constraintsOf returns the constraints that concern a request. Those of its claim begin at first.
func constraintsOf(claim *resourceapi.ResourceClaim, first int, request, alternative string) []int {
	var all []int
	for i, c := range claim.Spec.Devices.Constraints {
		if len(c.Requests) == 0 || slices.Contains(c.Requests, request) || alternative != "" &&
			slices.Contains(c.Requests, resourceclaim.CreateSubRequestRef(request, alternative)) {
			all = append(all, first+i)
		}
	}
	return all
}

func compileSlot(request *resourceapi.DeviceRequest, classes Classes, selectors *selector.Cache) (slot, error) {
	s := slot{name: request.Name}
	var wanted []resourceapi.ExactDeviceRequest
	switch {
	case request.Exactly != nil:
		wanted = append(wanted, *request.Exactly)
	case len(request.FirstAvailable) > 0:
		s.first = true
		for i := range request.FirstAvailable {
			sub := &request.FirstAvailable[i]
			wanted = append(wanted, resourceapi.ExactDeviceRequest{
				DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, AllocationMode: sub.AllocationMode,
				Count: sub.Count, Tolerations: sub.Tolerations, Capacity: sub.Capacity,
				DerivedAttributes: sub.DerivedAttributes,
			})
		}
	default:
		return slot{}, NotModelled(ReasonFeature, "request %q is of an unknown kind", request.Name)
	}
	for i := range wanted {
		a, err := compileAlternative(&wanted[i], classes, selectors)
		if err != nil {
			return slot{}, fmt.Errorf("request %q: %w", request.Name, err)
		}
		if s.first {
			a.name = request.FirstAvailable[i].Name
		}
		s.alternatives = append(s.alternatives, a)
	}
	return s, nil
}

func compileAlternative(
	wanted *resourceapi.ExactDeviceRequest, classes Classes, selectors *selector.Cache,
) (alternative, error) {
	a := alternative{
		class: wanted.DeviceClassName, admin: ptr.Deref(wanted.AdminAccess, false), tolerations: wanted.Tolerations,
	}
	switch {
	case wanted.Capacity != nil:
		return a, NotModelled(ReasonFeature, "it requests capacity of devices")
	case len(wanted.DerivedAttributes) > 0:
		return a, NotModelled(ReasonFeature, "it has derived attributes")
	}
	switch wanted.AllocationMode {
	case resourceapi.DeviceAllocationModeExactCount:
		a.count = int(min(wanted.Count, resourceapi.AllocationResultsMaxSize+1)) // more do not fit either
	case resourceapi.DeviceAllocationModeAll:
		a.all = true
	default:
		return a, NotModelled(ReasonFeature, "it has the allocation mode %q", wanted.AllocationMode)
	}
	class, err := classes.Get(wanted.DeviceClassName)
	if err != nil {
		return a, fmt.Errorf("get device class %q: %w", wanted.DeviceClassName, err)
	}
	a.ofClass = len(class.Spec.Selectors)
	for _, list := range [][]resourceapi.DeviceSelector{class.Spec.Selectors, wanted.Selectors} {
		for _, s := range list {
			if s.CEL == nil {
				return a, NotModelled(ReasonFeature, "it has a selector of an unknown kind")
			}
			expression, err := selectors.Compile(s.CEL.Expression)
			if err != nil {
				return a, NotModelled(ReasonError, "%v", err)
			}
			a.selectors = append(a.selectors, expression)
		}
	}
	return a, nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/statetest"
)

// replacing is a checkpoint with one pod, a, whose container main has a device of three, and which
// notes the states of its replacement.
type replacing struct {
	*testing.T
	checkpoint *Checkpoint
	seen       []ReplacementState
}

func newReplacing(t *testing.T) *replacing {
	w := newFixture()
	c, _ := open(t, w)
	a := wants("a", map[types.ResourceName]int64{cards0: 1})
	if _, err := c.grant(&a, oneEach); err != nil {
		t.Fatal(err)
	}
	w.run(a)
	r := &replacing{T: t, checkpoint: c}
	r.observe(nil)
	return r
}

// oneEach is a node with one of each device.
func oneEach(types.ResourceName) (int64, bool) { return 1, true }

// observe notes the state after a change.
func (r *replacing) observe(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
	a, ok, err := r.checkpoint.Granted(r.Context(), "a")
	if err != nil || !ok {
		r.Fatalf("pod a is not granted devices: %v", err)
	}
	r.seen = append(r.seen, a.Replacement("main"))
}

func (r *replacing) generation() int64 {
	r.Helper()
	a, _, err := r.checkpoint.Granted(r.Context(), "a")
	if err != nil {
		r.Fatal(err)
	}
	return a.Generation
}

// requests has the node request other devices for main.
func (r *replacing) requests() {
	r.Helper()
	_, err := r.checkpoint.RequestReplacement("a", r.generation(), []string{"main"})
	r.observe(err)
}

// withdraws has the node request none.
func (r *replacing) withdraws() {
	r.Helper()
	_, err := r.checkpoint.RequestReplacement("a", r.generation(), nil)
	r.observe(err)
}

// refuses has the node refuse an answer.
func (r *replacing) refuses(generation int64) {
	r.Helper()
	r.observe(r.checkpoint.Refuse("a", generation))
}

// takes has the node take an answer.
func (r *replacing) takes(generation int64, device types.ResourceName) {
	r.Helper()
	_, err := r.checkpoint.Replace(next("a", generation, device), oneEach)
	r.observe(err)
}

// stops has the container stop using its previous devices.
func (r *replacing) stops() {
	r.Helper()
	r.observe(r.checkpoint.Release("a", "main"))
}

// replacementWalks are the transitions as the comment of ReplacementState has them. Each brings the
// container into the first state and out of it.
var replacementWalks = map[string]func(r *replacing){
	"Settled the node requests other devices -> Requested": func(r *replacing) { r.requests() },
	"Requested the scheduler's answer cannot be used -> Refused": func(r *replacing) {
		r.requests()
		r.refuses(1)
	},
	"Requested an answer is taken -> Leaving": func(r *replacing) {
		r.requests()
		r.takes(1, cards1)
	},
	"Requested the node withdraws the request -> Withdrawn": func(r *replacing) {
		r.requests()
		r.withdraws()
	},
	"Refused a later answer is taken -> Leaving": func(r *replacing) {
		r.requests()
		r.refuses(1)
		r.takes(2, cards1)
	},
	"Refused the node withdraws the request -> Withdrawn": func(r *replacing) {
		r.requests()
		r.refuses(1)
		r.withdraws()
	},
	"Withdrawn the node requests other devices -> Requested": func(r *replacing) {
		r.requests()
		r.withdraws()
		r.requests()
	},
	"Withdrawn an answer that was on its way is taken -> Leaving": func(r *replacing) {
		r.requests()
		r.withdraws()
		r.takes(1, cards1)
	},
	"Leaving the container has stopped using its previous devices -> Settled": func(r *replacing) {
		r.requests()
		r.takes(1, cards1)
		r.stops()
	},
	"Leaving it has, and an answer to a refused one is on its way -> Withdrawn": func(r *replacing) {
		r.requests()
		r.refuses(1)
		r.takes(1, cards1)
		r.stops()
	},
	"Leaving the node requests other devices, as these failed, too -> Requested": func(r *replacing) {
		r.requests()
		r.takes(1, cards1)
		r.requests()
	},
}

func TestEveryTransitionOfAReplacementIsWalked(t *testing.T) {
	statetest.Walk(t, "replacementstate.go", replacementWalks, func(
		t *testing.T, walk func(*replacing),
	) []ReplacementState {
		r := newReplacing(t)
		walk(r)
		return r.seen
	})
}

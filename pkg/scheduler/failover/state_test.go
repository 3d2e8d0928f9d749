// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"errors"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/statetest"
)

// replacing is a fixture with a pod p that has GPU A, which has failed. It notes the states of the
// pod's replacement.
type replacing struct {
	*fixture
	seen []state
}

// observe notes the state.
func (r *replacing) observe() {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	r.seen = append(r.seen, r.engine.reservations["p"].state)
}

// answers has the engine answer the node's request once.
func (r *replacing) answers() {
	r.Helper()
	r.patching = r.observe
	r.engine.sync(r.Context(), "n")
	r.patching = nil
	r.observe()
}

// fails has the device of a generation fail.
func (r *replacing) fails(generation int64) {
	r.Helper()
	r.seen = append(r.seen, r.seen[len(r.seen)-1])
	gpu := r.has("p", "main")[:1]
	r.breaks(gpu, replacement("p", generation, "main"))
}

// expires has the reservation expire, if it may.
func (r *replacing) expires(after time.Duration) {
	r.node()
	r.engine.release("n", time.Now().Add(after))
	r.observe()
}

// patches is how often a patch without an answer is sent.
const patches = 3

// loses has the API server answer no patch, and apply the last one or none.
func (r *replacing) loses(applies bool) {
	tries := 0
	var lose func(func()) error
	lose = func(apply func()) error {
		if tries++; tries < patches {
			r.lose = lose
		}
		if applies && tries == patches {
			apply()
		}
		return errors.New("the connection is lost")
	}
	r.lose = lose
}

// replacementWalks are the transitions as the comment of state has them.
var replacementWalks = map[string]func(r *replacing){
	"Absent devices are chosen for the request of a node -> Chosen": func(r *replacing) { r.answers() },
	"Chosen the pod has them in the API server -> Written":          func(r *replacing) { r.answers() },
	"Chosen the API server refuses them, or the pod has changed -> Absent": func(r *replacing) {
		r.pods[0].ResourceVersion = "0"
		r.answers()
	},
	"Chosen the API server does not answer -> Unresolved": func(r *replacing) {
		r.loses(false)
		r.answers()
	},
	"Written keepReserved is over, and the informer shows the pod -> Absent": func(r *replacing) {
		r.answers()
		r.expires(keepReserved) // the informer does not show it
		r.fixture.seen()
		r.expires(keepReserved)
	},
	"Written the node requests others, as these have failed -> Chosen": func(r *replacing) {
		r.answers()
		r.fixture.seen()
		r.fails(1)
		r.answers()
	},
	"Unresolved lateEffect is over -> Absent": func(r *replacing) {
		r.loses(false)
		r.answers()
		r.expires(keepReserved) // it is not over
		r.lose = nil
		r.expires(lateEffect)
	},
	"Unresolved the pod has them, and its node requests others -> Chosen": func(r *replacing) {
		r.loses(true)
		r.answers()
		r.lose = nil
		r.fixture.seen()
		r.fails(1)
		r.answers()
	},
}

func TestEveryTransitionOfAReplacementIsWalked(t *testing.T) {
	statetest.Walk(t, "state.go", replacementWalks, func(t *testing.T, walk func(*replacing)) []state {
		f := newFixture(t)
		f.holder("p", 0, map[string]string{"main": "A"})
		f.breaks("A", replacement("p", 0, "main"))
		r := &replacing{fixture: f}
		r.observe()
		walk(r)
		return r.seen
	})
}

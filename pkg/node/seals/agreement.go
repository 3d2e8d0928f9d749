// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seals

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

// checkInterval is the time between two comparisons of the node's mode with the scheduler's.
const checkInterval = 10 * time.Second

// Agreement knows the node's mode, and whether the scheduler seals what the node demands. All
// methods are safe for concurrent use.
type Agreement struct {
	set  seal.Mode // by --seal-mode, or ""
	keys ModeSource

	announced bool // only Run uses it

	mu             sync.Mutex
	valid, missing int // allocations since the start
}

// ModeSource are keys that state a mode. *Keys implements it.
type ModeSource interface {
	// Mode returns the mode, or "" for none.
	Mode() seal.Mode
	// Verifier returns the keys, and a channel that is closed when they change. Its error says why
	// no key is known.
	Verifier() (verifier *seal.Verifier, changed <-chan struct{}, err error)
}

// NewAgreement returns the agreement of a node on which the flag sets this mode, "" for none.
func NewAgreement(set seal.Mode, keys ModeSource) *Agreement { return &Agreement{set: set, keys: keys} }

// Verifier returns the scheduler's keys. Its error says why no key is known.
func (a *Agreement) Verifier() (*seal.Verifier, error) {
	verifier, _, err := a.keys.Verifier()
	return verifier, err
}

// Mode returns the node's mode: what the flag sets, else what the keys state, else seal.Enforce.
func (a *Agreement) Mode() seal.Mode {
	if a.set != "" {
		return a.set
	}
	if mode := a.keys.Mode(); mode != "" {
		return mode
	}
	return seal.Enforce
}

// Observe counts the result of a verification, see admission.Seals.
func (a *Agreement) Observe(result string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch result {
	case "valid":
		a.valid++
	case string(seal.Missing):
		a.missing++
	}
}

// Conflict returns why the node demands more than the scheduler seals, and the next step, or "".
func (a *Agreement) Conflict() string {
	if stated := a.keys.Mode(); a.set != "" && stated != "" && a.set.StrongerThan(stated) {
		return fmt.Sprintf("the node's --seal-mode=%s is stronger than the cluster's mode %s, which the seal keys "+
			"state: remove the flag, or have the keys state %[1]s with kubecri seal-keys set-mode", a.set, stated)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Mode() == seal.Enforce && a.missing > 0 && a.valid == 0 {
		return fmt.Sprintf("the node enforces seals, and none of the %d allocations since kubecri's start had one: "+
			"the scheduler may have no key; set its --device-seal-key, or the seal mode %s until it has one", a.missing,
			seal.Warn)
	}
	return ""
}

// Run calls announce with each new conflict, until ctx is done.
func (a *Agreement) Run(ctx context.Context, clk clock.WithTicker, announce func(conflict string)) {
	ticker := clk.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		a.announceNew(announce)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// announceNew calls announce if there is a conflict, and was none the last time.
func (a *Agreement) announceNew(announce func(conflict string)) {
	conflict := a.Conflict()
	if conflict != "" && !a.announced {
		announce(conflict)
	}
	a.announced = conflict != ""
}

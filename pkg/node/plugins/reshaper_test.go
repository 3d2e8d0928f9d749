// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reshaper is a plugin whose second device is there until it hears that no pod holds it.
type reshaper struct {
	*fake
	idle, broken atomic.Bool
}

func (r *reshaper) SetHeld(devices []string, complete bool) {
	if r.broken.Load() {
		panic("broken")
	}
	r.idle.Store(complete && len(devices) == 0)
}

func (r *reshaper) UpdateNodeInfo(info *types.NodeInfo) error {
	if r.idle.Load() {
		return offers(count, card0)(info)
	}
	return offers(count, card0, card1)(info)
}

// holdings are what a function returns.
type holdings func() (devices []string, complete bool)

// Held implements Holdings.
func (h holdings) Held() (devices []string, complete bool) { return h() }

func TestHeldDevicesAreReportedToAPluginThatMakesDevices(t *testing.T) {
	var held, complete atomic.Bool
	r := &reshaper{fake: &fake{name: "a"}}
	files := newFiles(quick, nil, r)
	m := startWith(t, files, holdings(func() ([]string, bool) {
		if held.Load() {
			return []string{"resource/group/gpu/1"}, complete.Load()
		}
		return nil, complete.Load()
	}))
	has := func(i *Inventory) bool {
		quantity, _ := i.Allocatable(card1)
		return quantity == 1
	}
	until(t, m, "the device, as it is not known who holds what", func(i *Inventory) bool {
		return i.Complete && has(i)
	})
	complete.Store(true)
	until(t, m, "that no pod holds it", func(i *Inventory) bool { return !has(i) })
	held.Store(true)
	until(t, m, "that somebody does", has)

	r.broken.Store(true)
	until(t, m, "the error", func(*Inventory) bool { return m.Check() != nil })
	r.idle.Store(true)
	time.Sleep(100 * quick.Interval)
	until(t, m, "what was reported before, as it is not known who holds what", has)
	r.broken.Store(false)
	until(t, m, "that all is well", func(i *Inventory) bool { return m.Check() == nil && has(i) })
}

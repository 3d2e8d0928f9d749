// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"sync/atomic"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reshaper is a plugin whose second device is there until it hears that nobody holds it.
type reshaper struct {
	*fake
	idle atomic.Bool
}

func (r *reshaper) SetHeld(devices []string, complete bool) {
	r.idle.Store(complete && len(devices) == 0)
}

func (r *reshaper) UpdateNodeInfo(info *types.NodeInfo) error {
	if r.idle.Load() {
		return offers(count, card0)(info)
	}
	return offers(count, card0, card1)(info)
}

func TestAPluginThatMakesDevicesIsToldWhichAreHeld(t *testing.T) {
	var held, complete atomic.Bool
	files := newFiles(quick, nil, &reshaper{fake: &fake{name: "a"}})
	files.Follow(func() ([]string, bool) {
		if held.Load() {
			return []string{"resource/group/gpu/1"}, complete.Load()
		}
		return nil, complete.Load()
	})
	m := start(t, files)
	has := func(i *Inventory) bool {
		quantity, _ := i.Allocatable(card1)
		return quantity == 1
	}
	until(t, m, "the device, as it is not known who holds what", func(i *Inventory) bool {
		return i.Complete && has(i)
	})
	complete.Store(true)
	until(t, m, "that nobody holds it", func(i *Inventory) bool { return !has(i) })
	held.Store(true)
	until(t, m, "that somebody does", has)
}

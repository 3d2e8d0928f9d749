// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// healthPause is how often a plugin is asked while a device is broken.
const healthPause = 200 * time.Millisecond

// shell runs a command of the user's.
func shell(command string) error {
	out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
	if err != nil {
		return withFix(fmt.Errorf("the command %q: %w: %s", command, err, brief(string(out))), "correct the command")
	}
	return nil
}

// await asks until reached says so, or the time is up.
func await(limit time.Duration, reached func() (bool, error)) (bool, error) {
	for end := time.Now().Add(limit); ; time.Sleep(healthPause) {
		if ok, err := reached(); ok || err != nil {
			return ok, err
		}
		if time.Now().After(end) {
			return false, nil
		}
	}
}

// healthUntested is why health is not tested.
const healthUntested = "it takes commands that break a device and mend it: --break and --mend"

func (d *deviceHalf) checkHealth() (err error) {
	if d.options.Break == "" || d.options.Mend == "" {
		return notApplicable(healthUntested)
	}
	whole, err := d.inventory()
	if err != nil {
		return err
	}
	if err := shell(d.options.Break); err != nil {
		return err
	}
	mended := false
	defer func() {
		if !mended {
			err = errors.Join(err, shell(d.options.Mend))
		}
	}()
	var broken *types.NodeInfo
	reported, err := await(d.options.Limits.Health, func() (bool, error) {
		broken, err = d.inventory()
		return err == nil && len(devices(broken)) < len(devices(whole)), err
	})
	if err != nil {
		return fmt.Errorf("while a device is broken, %w", err)
	}
	if !reported {
		return fmt.Errorf("%v after --break, all %d devices are allocatable", d.options.Limits.Health,
			len(devices(whole)))
	}
	if err := sameList(whole.Capacity, broken.Capacity); err != nil {
		return fmt.Errorf("while a device is broken, Capacity is another one: %w", err)
	}
	if sum(broken.KubeAlloc) >= sum(whole.KubeAlloc) && len(whole.KubeAlloc) > 0 {
		return errors.New("while a device is broken, it counts as allocatable in KubeAlloc")
	}
	mended = true
	if err := shell(d.options.Mend); err != nil {
		return err
	}
	var last error
	back, err := await(d.options.Limits.Health, func() (bool, error) {
		again, err := d.inventory()
		if err == nil {
			last = sameInventory(whole, again)
		}
		return last == nil, err
	})
	if err == nil && !back {
		err = fmt.Errorf("%v after --mend the inventory is not what it was: %w", d.options.Limits.Health, last)
	}
	return err
}

func sum(list types.ResourceList) (total int64) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		total += list[name]
	}
	return total
}

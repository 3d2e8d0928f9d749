// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// healthInterval is how often a plugin is called while a device is broken.
const healthInterval = 200 * time.Millisecond

// shell runs a command of the user's. What it leaves running in the background, such as a plugin,
// is not waited for, and may go on writing: the output is a file.
func (l Limits) shell(command string) error {
	out, err := os.CreateTemp("", "plugin-test-")
	if err != nil {
		return withFix(fmt.Errorf("no file for the output of %q: %w", command, err),
			"set TMPDIR to a directory that can be written")
	}
	defer out.Close() //nolint:errcheck // the file is removed
	defer os.Remove(out.Name())
	ctx, cancel := context.WithTimeout(context.Background(), l.Command)
	defer cancel()
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.Stdout, c.Stderr = out, out
	if err = c.Run(); err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return withFix(fmt.Errorf("the command %q did not end within %v", command, l.Command),
			"have it end, and run in the background what is to stay")
	}
	said := make([]byte, maxBrief+1)
	n, _ := out.ReadAt(said, 0) // the rest of the message says enough
	return withFix(fmt.Errorf("the command %q: %w: %s", command, err, brief(string(said[:n]))), "correct the command")
}

// repair runs the command that repairs a device.
func (o Options) repair() error {
	if err := o.Limits.shell(o.Repair); err != nil {
		return fmt.Errorf("a device may still be broken, as --mend failed: %w", err)
	}
	return nil
}

// await calls the plugin until reached says so, or the time is up.
func await(limit time.Duration, reached func() (bool, error)) (bool, error) {
	for end := time.Now().Add(limit); ; time.Sleep(healthInterval) {
		if ok, err := reached(); ok || err != nil {
			return ok, err
		}
		if time.Now().After(end) {
			return false, nil
		}
	}
}

// healthUntested is why health is not tested.
const healthUntested = "it takes commands that break a device and repair it: --break and --mend"

func (d *devicePlugin) checkHealth() error {
	if d.options.Break == "" || d.options.Repair == "" {
		return notApplicable(healthUntested)
	}
	whole, err := d.inventory()
	if err != nil {
		return err
	}
	reported, err := d.whileBroken(whole, func(broken *types.NodeInfo) error {
		if err := sameList(whole.Capacity, broken.Capacity); err != nil {
			return fmt.Errorf("while a device is broken, Capacity is another one: %w", err)
		}
		if sum(broken.KubeAlloc) >= sum(whole.KubeAlloc) && len(whole.KubeAlloc) > 0 {
			return errors.New("while a device is broken, it counts as allocatable in KubeAlloc")
		}
		return nil
	})
	if err == nil && !reported {
		err = fmt.Errorf("%v after --break, all %d devices are allocatable", d.options.Limits.Health,
			len(devices(whole)))
	}
	return err
}

// whileBroken breaks a device, calls do with what the plugin reports when it has noticed, and
// repairs the device again. reported is false if the plugin does not notice.
func (d *devicePlugin) whileBroken(
	whole *types.NodeInfo, do func(broken *types.NodeInfo) error,
) (reported bool, err error) {
	if err := d.options.Limits.shell(d.options.Break); err != nil {
		return false, err
	}
	repaired := false
	defer func() {
		if !repaired {
			err = errors.Join(err, d.options.repair())
		}
	}()
	var broken *types.NodeInfo
	reported, err = await(d.options.Limits.Health, func() (bool, error) {
		broken, err = d.inventory()
		return err == nil && len(devices(broken)) < len(devices(whole)), err
	})
	if err != nil {
		return false, fmt.Errorf("while a device is broken, %w", err)
	}
	if !reported {
		return false, nil
	}
	if err := do(broken); err != nil {
		return true, err
	}
	repaired = true
	if err := d.options.repair(); err != nil {
		return true, err
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
	return true, err
}

// checkReasons checks what the plugin says of its devices' health, also while one is broken, if
// there are commands for that. That such a device is noticed at all is another check's.
func (d *devicePlugin) checkReasons() error {
	reporter, ok := d.plugin.(device.HealthReporter)
	if !ok {
		return notApplicable("it is no HealthReporter, so the reason of an unhealthy device is unknown")
	}
	whole, err := d.inventory()
	if err != nil {
		return err
	}
	if err := d.checkReport(reporter, whole); err != nil {
		return err
	}
	if d.options.Break == "" || d.options.Repair == "" {
		return nil
	}
	_, err = d.whileBroken(whole, func(broken *types.NodeInfo) error {
		if err := d.checkReport(reporter, broken); err != nil {
			return fmt.Errorf("while a device is broken, %w", err)
		}
		return nil
	})
	return err
}

// checkReport checks what the plugin says of the devices that it has just reported.
func (d *devicePlugin) checkReport(reporter device.HealthReporter, info *types.NodeInfo) error {
	list, err := callPlugin(d.caller, "DeviceHealth", d.options.Limits.Update, reporter.DeviceHealth)
	if err != nil {
		return err
	}
	unhealthy := map[string]bool{} // of those that it has: whether nothing is allocatable
	for name := range info.Capacity {
		if path, err := resource.ParsePath(name); err == nil && path.Depth() > 0 {
			unhealthy[types.DeviceGroupPrefix+"/"+path.Device()] = true
		}
	}
	for _, one := range devices(info) {
		unhealthy[types.DeviceGroupPrefix+"/"+one.path] = false
	}
	said := map[string]bool{}
	for _, h := range list {
		name := brief(h.Device)
		switch _, known := unhealthy[h.Device]; {
		case !known:
			return fmt.Errorf("DeviceHealth lists %q, which UpdateNodeInfo does not", name)
		case said[h.Device]:
			return fmt.Errorf("DeviceHealth lists %q twice", name)
		case !plugins.IsReason(h.Reason) && !(h.Healthy && h.Reason == ""):
			return fmt.Errorf("DeviceHealth has the reason %q for %q", brief(h.Reason), name)
		case h.Since.After(time.Now().Add(time.Minute)):
			return fmt.Errorf("DeviceHealth says that %q is so since %v, which is to come", name, h.Since)
		}
		said[h.Device] = true
	}
	for _, name := range slices.Sorted(maps.Keys(unhealthy)) {
		if unhealthy[name] && !said[name] {
			return fmt.Errorf("nothing of %q is allocatable, and DeviceHealth does not say why", brief(name))
		}
	}
	return nil
}

func sum(list types.ResourceList) (total int64) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		total += list[name]
	}
	return total
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

// Options say what the tests may expect of the machine.
type Options struct {
	// NoDevices says that the machine has none of the plugin's devices: what needs one is not
	// applicable then.
	NoDevices bool
	// Break is a shell command that makes a device unhealthy, and Mend one that makes it healthy
	// again, also if all are. Without them, health is not tested.
	Break, Repair string
	// Restart is a shell command that restarts a kubelet device plugin.
	Restart string
	// Limits are how long calls may take.
	Limits Limits
}

// Limits are how long a plugin may take for what it does.
type Limits struct {
	// Start, Update and Allocate limit these calls of a device plugin, Schedule each call of a
	// scheduler plugin.
	Start, Update, Allocate, Schedule time.Duration
	// Health is how long a device may be broken, or repaired, until the plugin reports it.
	Health time.Duration
	// Concurrent is how long calls are made at the same time.
	Concurrent time.Duration
	// Check is how long one check may take, with all its calls, beyond Start, Health and Command.
	Check time.Duration
	// Command is how long each of the commands Break, Mend and Restart may take.
	Command time.Duration
}

// DefaultLimits are those of the hosts: see plugins.DefaultTiming, and the limits of package
// pluginhost.
func DefaultLimits() Limits {
	timing := plugins.DefaultTiming()
	return Limits{
		Start: timing.Start, Update: timing.Update, Allocate: timing.Allocate, Schedule: time.Second,
		Health: 30 * time.Second, Concurrent: 500 * time.Millisecond, Check: 2 * time.Minute,
		Command: 2 * time.Minute,
	}
}

// total is how long one check may take, which makes many calls.
func (l Limits) total() time.Duration { return l.Check + l.Start + 2*(l.Health+l.Command) }

// The kinds of plugins in a report.
const (
	kindDevice    = "device plugin"
	kindScheduler = "scheduler plugin"
	kindUnknown   = "plugin"
)

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// plugin is the Source of a plugin file.
type plugin struct {
	name     string
	device   device.Device
	denied   map[string]string // see device.Isolator
	firewall device.Firewall   // see device.Firewalled
	caller   *plugincall.Caller
	timing   Timing

	last    *types.NodeInfo // the last report, accepted or not; for the goroutine of run
	lastErr error           // why it was not accepted

	healthErr error       // of the last DeviceHealth; for the goroutine of run
	described description // of the last DeviceAttributes; for the goroutine of run

	mu    sync.Mutex
	state State
}

var _ Source = (*plugin)(nil)

// maxOverdue is how many calls of a plugin that is safe for concurrent use may be past their
// limits. One that hangs in a driver takes a thread each, and a process that has no more threads
// ends.
const maxOverdue = 16

// newPlugin detects the plugin's optional capabilities.
func newPlugin(
	ctx context.Context, loaded pluginload.Loaded[device.Device], timing Timing, metrics Metrics,
) (*plugin, error) {
	policy := plugincall.Policy{
		Kind: "device plugin", Clock: clock.RealClock{}, TimeoutCoversQueue: true, MaxOverdue: maxOverdue,
		Observe: func(string, string, time.Duration, error) {},
	}
	if metrics != nil {
		policy.Observe = metrics.ObservePlugin
	}
	// A plugin that has not declared yet that it is safe for concurrent use may not be.
	p := &plugin{
		name: loaded.Name, device: loaded.Plugin, timing: timing,
		caller: plugincall.New(policy, loaded.Name, false),
		state:  State{Err: fmt.Errorf("device plugin %q is not started yet", loaded.Name)},
	}
	if capability, ok := loaded.Plugin.(device.ConcurrentSafe); ok {
		safe, err := callPlugin(ctx, p, "ConcurrentSafe", timing.Update,
			func() (bool, error) { return capability.ConcurrentSafe(), nil })
		if err != nil {
			return nil, err
		}
		p.caller = plugincall.New(policy, loaded.Name, safe)
	}
	if capability, ok := loaded.Plugin.(device.Isolator); ok {
		var err error
		p.denied, err = callPlugin(ctx, p, "DenyEnvs", timing.Update,
			func() (map[string]string, error) { return maps.Clone(capability.DenyEnvs()), nil })
		if err != nil {
			return nil, err
		}
		if err := CheckFirewall(device.Firewall{Envs: p.denied}); err != nil {
			return nil, fmt.Errorf("device plugin %q: DenyEnvs: %w", p.name, err)
		}
	}
	if capability, ok := loaded.Plugin.(device.Firewalled); ok {
		var err error
		p.firewall, err = callPlugin(ctx, p, "Firewall", timing.Update,
			func() (device.Firewall, error) { return cloneFirewall(capability.Firewall()), nil })
		if err != nil {
			return nil, err
		}
		if err := CheckFirewall(p.firewall); err != nil {
			return nil, fmt.Errorf("device plugin %q: Firewall: %w", p.name, err)
		}
	}
	return p, nil
}

// callPlugin calls the plugin. do may outlive the call, so it must own what it uses.
func callPlugin[T any](
	ctx context.Context, p *plugin, method string, limit time.Duration, do func() (T, error),
) (T, error) {
	return plugincall.Do(ctx, p.caller, plugincall.Call{Method: method, Timeout: limit}, do)
}

// Label implements Source.
func (p *plugin) Label() string { return p.name }

// Firewall implements Source.
func (p *plugin) Firewall(holds bool) device.Firewall {
	if holds || len(p.denied) == 0 {
		return p.firewall
	}
	all := p.firewall
	all.Envs = maps.Clone(p.denied)
	maps.Copy(all.Envs, p.firewall.Envs)
	return all
}

// State implements Source.
func (p *plugin) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// run starts the plugin, with retries, and then queries its devices every interval until ctx is
// done. It calls changed when the plugin's state has changed.
func (p *plugin) run(ctx context.Context, nodeName string, holdings Holdings, changed func()) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Plugin, p.name)
	ctx = klog.NewContext(ctx, logger)
	retry := startBackoff(p.timing.Interval)
	for {
		_, err := callPlugin(ctx, p, "Start", p.timing.Start, func() (struct{}, error) {
			return struct{}{},
				p.device.Start()
		})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if p.record(nil, nil, err) {
			logger.Error(err, "Device plugin does not start and offers no devices; will retry")
			changed()
		}
		if !sleep(ctx, retry.Step()) {
			return
		}
	}
	logger.V(2).Info("Started device plugin")
	for {
		var info *types.NodeInfo
		err := p.reportHeld(ctx, holdings)
		if err == nil {
			info, err = p.query(ctx, nodeName)
		}
		var health map[string]device.Health
		if err == nil {
			health = p.queryHealth(ctx)
			p.queryAttributes(ctx, info)
			info = withhold(info, health)
		}
		if ctx.Err() != nil {
			return
		}
		reported := p.record(info, health, err)
		if reported && err != nil {
			logger.Error(err, "Device plugin does not report its devices; its last report stays")
		}
		if p.recordDescription() || reported {
			changed()
		}
		if !sleep(ctx, p.timing.Interval) {
			return
		}
	}
}

// startBackoff returns the delays between tries of Start.
func startBackoff(first time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Jitter: 0.1, Steps: math.MaxInt, Cap: time.Minute}
}

// reportHeld reports to a plugin that makes devices itself which ones pods hold. After an error the
// plugin must not be queried for its devices: it would go by previous holders.
func (p *plugin) reportHeld(ctx context.Context, holdings Holdings) error {
	reshaper, ok := p.device.(device.Reshaper)
	if !ok {
		return nil
	}
	devices, complete := holdings.Held()
	_, err := callPlugin(ctx, p, "SetHeld", p.timing.Update, func() (struct{}, error) {
		reshaper.SetHeld(devices, complete)
		return struct{}{}, nil
	})
	return err
}

// query returns what the plugin reports now. A report that is the same as the last one has the same
// outcome, and is neither copied nor checked again.
func (p *plugin) query(ctx context.Context, nodeName string) (*types.NodeInfo, error) {
	last := p.last
	info, err := callPlugin(ctx, p, "UpdateNodeInfo", p.timing.Update, func() (*types.NodeInfo, error) {
		info := newReport(nodeName, last)
		if err := p.device.UpdateNodeInfo(info); err != nil {
			return nil, err
		}
		if last != nil && equalInfo(last, info) {
			return last, nil
		}
		// The plugin may have kept info.
		return info.Clone(), nil
	})
	if err != nil {
		return nil, err
	}
	if info != last {
		p.last, p.lastErr = info, CheckReport(info)
		if p.lastErr != nil {
			p.lastErr = fmt.Errorf("device plugin %q: %w", p.name, p.lastErr)
		}
	}
	if p.lastErr != nil {
		return nil, p.lastErr
	}
	return info, nil
}

// record keeps an outcome and reports whether it changes the state. info is nil when there is none.
func (p *plugin) record(info *types.NodeInfo, health map[string]device.Health, err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = !p.state.Reported || !sameText(p.state.Err, err)
	p.state.Reported, p.state.Serving, p.state.Err = true, err == nil, err
	// A report that was not accepted may have been between two of the same.
	if info != nil && info != p.state.Info && (p.state.Info == nil || !equalInfo(p.state.Info, info)) {
		p.state.Info = info
		changed = true
	}
	if info != nil && !maps.Equal(p.state.Health, health) {
		p.state.Health = health
		changed = true
	}
	return changed
}

func sameText(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// Allocate implements Source.
func (p *plugin) Allocate(ctx context.Context, claim Claim) (inject.Addition, error) {
	// Deep copies: the plugin may change and keep what it is given.
	pod, container := claim.Pod.Clone(), claim.Container.Clone()
	return callPlugin(ctx, p, "Allocate", p.timing.Allocate, func() (inject.Addition, error) {
		allocation, err := Allocate(p.device, pod, container)
		return inject.NewAddition(p.name, allocation), err
	})
}

// Allocate returns the richest answer that a plugin can give. It is the plugin's own: see
// inject.NewAddition for a copy.
func Allocate(from device.Device, pod *types.PodInfo, container *types.ContainerInfo) (device.Allocation, error) {
	if rich, ok := from.(device.Allocator); ok {
		answer, err := rich.AllocateContainer(pod, container)
		if err != nil || answer == nil {
			return device.Allocation{}, err
		}
		return *answer, nil
	}
	mounts, paths, envs, err := from.Allocate(pod, container)
	if err != nil {
		return device.Allocation{}, err
	}
	allocation := device.Allocation{Envs: envs}
	for _, path := range paths {
		allocation.Devices = append(allocation.Devices, device.HostDevice{HostPath: path})
	}
	for _, m := range mounts {
		allocation.Mounts = append(allocation.Mounts,
			device.HostMount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.Readonly})
	}
	return allocation, nil
}

// sleep waits for d and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/test/cluster"
)

const (
	// reachTimeout is how long it may take until a point is reached. A kubelet waits up to 15
	// seconds until it tries again.
	reachTimeout = time.Minute
	// upgradePods is how many pods are created each second while kubecri is upgraded.
	upgradePods = 20
	// upgrades is how many there are, an even number, upgradeInterval apart; the runtime is killed
	// runtimeInterval apart.
	upgrades                         = 20
	upgradeInterval, runtimeInterval = time.Second, 3 * time.Second
)

// kills returns the scenarios in which something is killed or replaced by the same.
func (r *run) kills() []scenario {
	var all []scenario
	for _, point := range r.options.Points {
		if point.OfReplacement() {
			all = append(all, r.failing(point))
			continue
		}
		all = append(all, scenario{
			name: string(point), title: "kubecri is killed: " + string(point),
			disturb: withoutWorkload(func(ctx context.Context) (int, error) { return r.killAt(ctx, point) }),
		})
	}
	if r.options.Upgrades {
		all = append(all, scenario{name: "upgrade", title: "kubecri is upgraded", interval: time.Second / upgradePods,
			disturb: withoutWorkload(r.upgrade)})
	}
	if r.options.Runtime {
		all = append(all, scenario{name: "runtime", title: "containerd is killed",
			disturb: withoutWorkload(r.killRuntime)})
	}
	return all
}

// withoutWorkload is for what disturbs without workloads of its own.
func withoutWorkload(
	disturb func(context.Context) (int, error),
) func(context.Context, *Result, func(*workload) error) (int, error) {
	return func(ctx context.Context, _ *Result, _ func(*workload) error) (int, error) { return disturb(ctx) }
}

// killAt kills kubecri each time that it reaches a point.
func (r *run) killAt(ctx context.Context, point failpoint.Point) (kills int, err error) {
	supervisor := r.node.Kubecri.Supervise()
	defer func() { err = errors.Join(err, supervisor.Stop()) }()
	if point == failpoint.Streaming {
		end, err := r.stream()
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, end(ctx)) }()
	}
	for kills < r.options.Kills {
		if err := r.killOnce(ctx, point, supervisor); err != nil {
			return kills, err
		}
		kills++
	}
	return kills, nil
}

// killOnce waits until kubecri has killed itself at a point and was started again.
func (r *run) killOnce(ctx context.Context, point failpoint.Point, supervisor *cluster.Supervisor) error {
	starts := supervisor.Restarts() + 1
	if point == failpoint.Reconciling {
		// What it does at its start, and then twice a minute. No kubecri reaches the point by
		// chance before it is armed.
		if err := r.node.Kubecri.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		if err := r.await(ctx, "kubecri has ended", func() bool {
			return r.node.Kubecri.PID() == 0 ||
				supervisor.Restarts() == starts
		}); err != nil {
			return err
		}
		starts++
	}
	if err := r.arm(point); err != nil {
		return err
	}
	return r.awaitKilled(ctx, point, supervisor, starts)
}

// awaitKilled waits until kubecri has killed itself at a point that is armed, and was started so
// often in all and serves.
func (r *run) awaitKilled(ctx context.Context, point failpoint.Point, supervisor *cluster.Supervisor,
	starts int) error {
	reached := func() bool {
		_, err := os.Stat(r.trigger)
		return errors.Is(err, fs.ErrNotExist)
	}
	if err := r.await(ctx, "kubecri has reached "+string(point), reached); err != nil {
		return err
	}
	if err := r.await(ctx, "kubecri is started again",
		func() bool { return supervisor.Restarts() == starts }); err != nil {
		return err
	}
	return r.awaitServing(ctx, r.node.Kubecri)
}

// arm makes kubecri kill itself when it reaches a point the next time.
func (r *run) arm(point failpoint.Point) error {
	next := r.trigger + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%s 1\n", point), 0o600); err != nil {
		return err
	}
	return os.Rename(next, r.trigger)
}

// awaitServing waits until a kubecri takes the kubelet's calls, or is registered with the runtime.
func (r *run) awaitServing(ctx context.Context, kubecri *cluster.Component) error {
	if r.options.Mode == cluster.ModeNRI {
		return r.await(ctx, kubecri.Name+" is registered with NRI", func() bool {
			return kubecri.PID() != 0 && r.registered(ctx)
		})
	}
	return r.await(ctx, kubecri.Name+" takes the kubelet's calls", func() bool {
		pid, err := r.node.KubecriPID(ctx)
		return err == nil && pid == kubecri.PID()
	})
}

// await waits until is holds, which should take seconds. what says the same in words.
func (r *run) await(ctx context.Context, what string, is func() bool) error {
	for limit := time.After(reachTimeout); !is(); {
		select {
		case <-limit:
			return fmt.Errorf("after %v, it is still not so that %s", reachTimeout, what)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-time.After(pollInterval / 10):
		}
	}
	return nil
}

// stream keeps a stream of container events open, as a kubelet does that receives them, until it
// is ended.
func (r *run) stream() (end func(context.Context) error, err error) {
	reader := r.node.NewComponent("events",
		cluster.Program{Path: "crictl", Args: []string{"--runtime-endpoint=" + cluster.Endpoint, "events"}})
	if err := reader.Start(); err != nil {
		return nil, err
	}
	supervisor := reader.Supervise()
	return func(ctx context.Context) error {
		return errors.Join(supervisor.Stop(), reader.Kill9(ctx))
	}, nil
}

// upgrade starts one kubecri after the other, each next to the previous one, which then drains and
// ends by itself.
func (r *run) upgrade(ctx context.Context) (count int, err error) {
	now, next := r.node.Kubecri, r.node.NewKubecri("kubecri-next", r.kubecri)
	// After an even number, the first one is back in its place.
	for ; count < upgrades; count++ {
		select {
		case <-time.After(upgradeInterval):
		case <-ctx.Done():
			return count, context.Cause(ctx)
		}
		if err := r.succeed(ctx, now, next); err != nil {
			return count, err
		}
		now, next = next, now
	}
	return count, nil
}

// succeed starts a kubecri next to another, which then drains and ends, as a proxy by itself.
func (r *run) succeed(ctx context.Context, now, next *cluster.Component) error {
	if r.options.Mode == cluster.ModeNRI {
		return r.replace(ctx, now, next)
	}
	if err := next.Start(); err != nil {
		return err
	}
	if err := r.awaitServing(ctx, next); err != nil {
		return err
	}
	return r.await(ctx, now.Name+", which has handed its socket over, has ended",
		func() bool { return now.PID() == 0 })
}

// killRuntime kills the container runtime again and again. Its containers live on.
func (r *run) killRuntime(ctx context.Context) (kills int, err error) {
	supervisor := r.node.Containerd.Supervise()
	defer func() { err = errors.Join(err, supervisor.Stop()) }()
	for ; kills < r.options.Kills; kills++ {
		select {
		case <-time.After(runtimeInterval):
		case <-ctx.Done():
			return kills, context.Cause(ctx)
		}
		if err := r.node.Containerd.Signal(syscall.SIGKILL); err != nil {
			return kills, err
		}
		if err := r.await(ctx, "containerd is started again",
			func() bool { return supervisor.Restarts() > kills }); err != nil {
			return kills, err
		}
	}
	return kills, nil
}

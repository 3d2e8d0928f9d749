// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
)

// roundLimit is how long a scheduler may take to bind the pods of a round.
const roundLimit = 5 * time.Minute

// measure runs one way once.
func (b *bench) measure(ctx context.Context, w way, nodes int) (sample report.Sample, err error) {
	count := w.podsOn(nodes, b.pods)
	warm := max(count/10, len(w.asks))
	if err := b.makePods(ctx, w, 0, warm); err != nil {
		return sample, err
	}
	bound, err := b.watchBinds(ctx)
	if err != nil {
		return sample, err
	}
	defer bound.close()
	scheduler, err := b.start(w.ours)
	if err != nil {
		return sample, err
	}
	defer func() {
		scheduler.stop()
		if err != nil {
			err = fmt.Errorf("%w; the scheduler's log ends with:\n%s", err, scheduler.said())
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("not all pods were bound in %v", roundLimit))
	defer cancel()

	if err := bound.await(ctx, warm, scheduler); err != nil {
		return sample, err
	}
	time.Sleep(flushInterval)
	before, err := scheduler.metrics(ctx)
	if err != nil {
		return sample, err
	}
	if err := scheduler.signal(syscall.SIGSTOP); err != nil {
		return sample, err
	}
	if err := b.makePods(ctx, w, warm, count); err != nil {
		return sample, err
	}
	cpu, began := scheduler.cpu(), time.Now()
	if err := scheduler.signal(syscall.SIGCONT); err != nil {
		return sample, err
	}
	profiled := b.startProfile(ctx, scheduler, w, nodes)
	if err := bound.await(ctx, count, scheduler); err != nil {
		return sample, err
	}
	all := bound.all()
	sample = report.Sample{Pods: count - warm, Seconds: all[count-1].at.Sub(began).Seconds(), CPUSeconds: (scheduler.cpu() - cpu).Seconds()}
	if err := errors.Join(<-profiled, check(w, all)); err != nil {
		return sample, err
	}

	flushed := time.After(flushInterval)
	if err := b.removePods(ctx); err != nil {
		return sample, err
	}
	<-flushed
	after, err := scheduler.metrics(ctx)
	if err != nil {
		return sample, err
	}
	if w.ours && w.usesDevices() && after.calls(pluginName) == 0 {
		return sample, fmt.Errorf("the plugin %s was never called", pluginName)
	}
	sample.Points = after.points(before)
	sample.OwnMicroseconds = 1e6 * after.own(before)
	return sample, nil
}

// check makes sure that our scheduler has chosen devices for all pods that ask for them.
func check(w way, pods []bind) error {
	if !w.ours || !w.usesDevices() {
		return nil
	}
	for _, bound := range pods {
		if _, err := deviceinfo.PodAllocation(bound.pod); err != nil {
			return fmt.Errorf("pod %s was bound without devices: %w", bound.pod.Name, err)
		}
	}
	return nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
)

// batchTimeout is how long a scheduler may take to bind the pods of a batch, and to say so.
const batchTimeout = 5 * time.Minute

// batch returns what it costs a side to bind a batch of pods, and removes them. Both schedulers are
// stopped before and after it; while it is measured, the other one is.
func (d *trial) batch(ctx context.Context, s side) (cost report.Sample, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, batchTimeout, fmt.Errorf("not all were in %v", batchTimeout))
	defer cancel()
	outcome, err := d.bench.watchOutcome(limited)
	if err != nil {
		return cost, err
	}
	defer outcome.close()
	if err := d.prepare(limited, s); err != nil {
		return cost, err
	}

	release := holdGarbage()
	defer release()
	cpu, began := s.cpu(), time.Now()
	if err := s.signal(syscall.SIGCONT); err != nil {
		return cost, err
	}
	endLoad := func() error { return nil }
	if d.load != nil && s.process == d.sides[0].process {
		endLoad = d.load.begin(limited, s.devices, questions(d.nodes, s.process.name))
	}
	answered := d.load.count()
	ended, err := outcome.await(limited, d.pods, s.process)
	spent := s.cpu() - cpu
	d.answered += d.load.count() - answered
	if err == nil {
		err = check(s.variant, outcome.bound())
	}
	if err != nil {
		return cost, errors.Join(err, endLoad())
	}
	if err := d.clear(limited, endLoad); err != nil {
		return cost, err
	}
	return report.Sample{Pods: d.pods, Seconds: ended.Sub(began).Seconds(), CPUSeconds: spent.Seconds()}, nil
}

// heldGarbage is how much may be held, in bytes, before it is collected nevertheless.
const heldGarbage = 4 << 30

// holdGarbage collects this process's garbage, nearly all of it the API server's, and has no more
// of it collected until the function that it returns is called. A collection takes about as long as
// a batch: it would be in one of two batches that are compared.
func holdGarbage() (release func()) {
	runtime.GC() //revive:disable-line:call-to-gc
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(int64(now.Sys)+heldGarbage)
	return func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(percent)
	}
}

// prepare makes the pods of a batch. Both schedulers get to know the pods' claims before: a
// scheduler that is stopped while so many are made leaves them unread, and the API server ends its
// watch.
func (d *trial) prepare(ctx context.Context, s side) error {
	d.made++
	if s.usesClaims() {
		if err := d.resume(); err != nil {
			return err
		}
		if err := d.bench.makeClaims(ctx, s.variant, d.made, d.pods); err != nil {
			return err
		}
		if err := d.drain(ctx); err != nil {
			return err
		}
	}
	return d.bench.makePods(ctx, s.variant, s.process.name, d.made, d.pods)
}

// clear removes all pods, and has both schedulers see how they came and went. Until the pods are
// gone, what-ifs are sent.
func (d *trial) clear(ctx context.Context, endLoad func() error) error {
	err := d.resume()
	if err == nil {
		err = d.bench.removePods(ctx)
	}
	if err := errors.Join(err, endLoad()); err != nil {
		return err
	}
	return d.drain(ctx)
}

// check makes sure that our scheduler has chosen devices for all pods that request them.
func check(w variant, bound []*corev1.Pod) error {
	if !w.ours || !w.usesDevices() {
		return nil
	}
	for _, pod := range bound {
		if _, err := deviceinfo.PodAllocation(pod); err != nil {
			return fmt.Errorf("pod %s was bound without devices: %w", pod.Name, err)
		}
	}
	return nil
}

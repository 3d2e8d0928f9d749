// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
)

// trial is a comparison that is being made: the schedulers of the variant and of its baseline, side
// by side.
type trial struct {
	bench *bench
	comparison
	nodes int
	// batches of pods that each side has in a round, and pods in a batch.
	batches, pods int
	// sides are the variant and its baseline.
	sides [2]side
	// load sends what-ifs to the variant's scheduler; nil without. answered is how many of
	// the questions were answered while batches were measured.
	load     *load
	answered int64
	// made is how many batches were made, of both sides together.
	made int
}

// side is one variant of a duel, and its scheduler.
type side struct {
	variant
	*process
}

// compare makes one comparison, on nodes of which some are free.
func (b *bench) compare(ctx context.Context, c comparison, nodes, free int) (pair report.Pair, err error) {
	d := &trial{bench: b, comparison: c, nodes: nodes}
	d.batches, d.pods = c.split(free, b.pods)
	pair.Comparison = c.reported()
	defer func() { err = d.end(err) }()
	if b.whatIfs > 0 {
		if d.load, err = b.newLoad(); err != nil {
			return pair, err
		}
	}
	if err := d.begin(ctx); err != nil {
		return pair, err
	}
	if _, err := d.turn(ctx); err != nil { // which makes caches warm
		return pair, err
	}
	before, err := d.read(ctx)
	if err != nil {
		return pair, err
	}
	for round := 0; round < b.rounds || d.load.isShort(b.whatIfs); round++ {
		began := time.Now()
		samples, err := d.round(ctx)
		if err != nil {
			return pair, fmt.Errorf("round %d: %w", round+1, err)
		}
		own, baseline := samples[0], samples[1]
		pair.OfVariant.Samples, pair.OfBaseline.Samples = append(pair.OfVariant.Samples, own),
			append(pair.OfBaseline.Samples, baseline)
		fmt.Fprintf(os.Stderr,
			"%d nodes, %v, round %d of %d in %.1f s: %.1f and %.1f pods/s, %.3f and %.3f ms CPU per pod\n",
			nodes, pair.Comparison, round+1, b.rounds, time.Since(began).Seconds(),
			own.PodsPerSecond(), baseline.PodsPerSecond(), own.CPUPerPod(), baseline.CPUPerPod())
		if pair.WhatIfs = d.load.count(); d.load != nil {
			fmt.Fprintf(os.Stderr, "%d what-ifs so far, %d of them while batches were measured\n", pair.WhatIfs,
				d.answered)
		}
	}
	after, err := d.read(ctx)
	if err != nil {
		return pair, err
	}
	for i, measured := range []*report.Measured{&pair.OfVariant, &pair.OfBaseline} {
		s := d.sides[i]
		if s.ours && s.usesDevices() && after[i].calls(pluginName) == before[i].calls(pluginName) {
			return pair, fmt.Errorf("%s: the plugin %s was never called", s.variant.name, pluginName)
		}
		measured.Points = after[i].points(before[i])
		if measured.Memory, err = s.memory(after[i]); err != nil {
			return pair, err
		}
	}
	if d.bench.profile == 0 {
		return pair, nil
	}
	profiles, err := d.takeProfiles(ctx)
	if err != nil {
		return pair, err
	}
	pair.OfVariant.OwnPart, err = ownPart(profiles[0])
	return pair, err
}

// round returns what each side's batches of one round cost.
func (d *trial) round(ctx context.Context) (sums [2]report.Sample, err error) {
	for range d.batches {
		costs, err := d.turn(ctx)
		if err != nil {
			return sums, err
		}
		for i, cost := range costs {
			sums[i] = sums[i].Plus(cost)
		}
	}
	return sums, nil
}

// turn runs a batch of each side, the sides in the opposite order of the turn before. So what grows
// or fades in time does as much good as harm.
func (d *trial) turn(ctx context.Context) (costs [2]report.Sample, err error) {
	first := d.made / 2 % 2
	for _, i := range []int{first, 1 - first} {
		if costs[i], err = d.batch(ctx, d.sides[i]); err != nil {
			return costs, fmt.Errorf("batch %d, of %s: %w", d.made, d.sides[i].variant.name, err)
		}
	}
	return costs, nil
}

// read returns both schedulers' metrics.
func (d *trial) read(ctx context.Context) (read [2]readings, err error) {
	if err := d.resume(); err != nil {
		return read, err
	}
	for i, s := range d.sides {
		if read[i], err = s.metrics(ctx); err != nil {
			return read, err
		}
	}
	return read, d.drain(ctx)
}

// end ends the schedulers. To an error it adds what they said.
func (d *trial) end(err error) error {
	for _, s := range d.sides {
		if s.process == nil {
			continue
		}
		s.stop()
		if err != nil {
			err = errors.Join(err, fmt.Errorf("the scheduler of %s said at last:\n%s", s.variant.name, s.said()))
		}
	}
	return err
}

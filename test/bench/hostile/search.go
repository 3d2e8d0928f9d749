// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/test/hostile"
)

// search is one run.
type search struct {
	time           time.Duration
	seed           uint64
	nodes, victims int
	only           *regexp.Regexp // machines and parts, as they are printed
}

// measured is how often a shape is measured that seems to be the worst: the least counts. The worst
// of a search is measured confirmed times more at its end: among thousands, one has the busiest
// moments of the machine in all of its measurements.
const measured, confirmed = 3, 10

// searched are the parts that shapes are looked for. The others are measured along with them.
var searched = []hostile.Part{hostile.Read, hostile.Fit, hostile.Reserve, hostile.Hint, hostile.Preempt}

// inCluster are the machines of whole clusters. Others are as costly, but thousands of them take
// more memory than a machine that runs this has.
var inCluster = []hostile.Machine{hostile.EightGPUs, hostile.HostedDevices}

// run searches one node of each machine for two thirds of the time, and then clusters.
func (s *search) run(ctx context.Context) (result, error) {
	r := result{Seed: s.seed, Nodes: s.nodes, Victims: s.victims}
	share := s.time * 2 / 3 / time.Duration(len(hostile.Machines())*len(searched))
	costly := map[hostile.Machine][]hostile.Shape{}
	for _, machine := range hostile.Machines() {
		for _, part := range searched {
			if !s.only.MatchString(fmt.Sprintf("%v, %v", machine, part)) {
				continue
			}
			found, err := s.oneNode(ctx, machine, part, share)
			if err != nil {
				return r, fmt.Errorf("%v, %v: %w", machine, part, err)
			}
			fmt.Fprintf(os.Stderr, "%v, %v: %d pods, the worst takes %v: %s\n", machine, part, found.Pods, found.Worst,
				found.Pod)
			r.Rows = append(r.Rows, found)
			costly[machine] = append(costly[machine], found.Shape)
		}
	}
	for _, machine := range inCluster {
		if !s.only.MatchString(fmt.Sprintf("%v, cycle", machine)) {
			continue
		}
		found, err := s.cluster(ctx, machine, costly[machine], s.time/3/time.Duration(len(inCluster)))
		if err != nil {
			return r, fmt.Errorf("%d nodes, %v: %w", s.nodes, machine, err)
		}
		r.Rows = append(r.Rows, found)
	}
	return r, nil
}

// oneNode looks for the shape that costs most in one part on one node.
func (s *search) oneNode(
	ctx context.Context, machine hostile.Machine, part hostile.Part, share time.Duration,
) (row, error) {
	victims := 0
	if part == hostile.Preempt {
		victims = s.victims
	}
	b, err := hostile.NewBench(machine, 1, victims, false)
	if err != nil {
		return row{}, err
	}
	ordinary, err := b.Measure(ctx, hostile.Ordinary(machine).Pod("ordinary"), measured)
	if err != nil {
		return row{}, err
	}
	found := row{Machine: machine.String(), Part: part.String(), Ordinary: ordinary.Cost[part], Bound: bound[part]}
	end := time.Now().Add(share)
	var failed error
	hostile.Climb(machine, s.seed, func(shape hostile.Shape) (int64, bool) {
		found.Pods++
		once, err := b.Measure(ctx, shape.Pod("hostile"), 1)
		if err == nil && once.Cost[part] > found.Worst {
			var again hostile.Result
			again, err = b.Measure(ctx, shape.Pod("hostile"), measured)
			once.Cost[part] = min(once.Cost[part], again.Cost[part])
			if once.Cost[part] > found.Worst {
				found.Worst, found.Shape, found.Pod, found.Status = once.Cost[part], shape, shape.String(), once.Status
			}
		}
		failed = errors.Join(err, context.Cause(ctx))
		return int64(once.Cost[part]), failed != nil || time.Now().After(end)
	})
	if failed != nil {
		return found, failed
	}
	worst, err := b.Measure(ctx, found.Shape.Pod("hostile"), confirmed)
	found.Worst = min(found.Worst, worst.Cost[part])
	return found, err
}

// cluster measures whole cycles of costly shapes and of those that are known to be, and of
// mutations of the costliest.
func (s *search) cluster(
	ctx context.Context, machine hostile.Machine, shapes []hostile.Shape, share time.Duration,
) (row, error) {
	found := row{Machine: fmt.Sprintf("%d × %v", s.nodes, machine), Part: "cycle", Bound: cycleBound}
	b, err := hostile.NewBench(machine, s.nodes, 0, false)
	if err != nil {
		return found, err
	}
	ordinary, err := b.MeasureCycle(ctx, hostile.Ordinary(machine).Pod("ordinary"))
	if err != nil {
		return found, err
	}
	found.Ordinary = ordinary.Ours
	visit := func(shape hostile.Shape) (time.Duration, error) {
		found.Pods++
		got, err := b.MeasureCycle(ctx, shape.Pod("hostile"))
		if err == nil && got.Ours > found.Worst {
			var again hostile.Cycle
			again, err = b.MeasureCycle(ctx, shape.Pod("hostile"))
			got.Ours = min(got.Ours, again.Ours)
		}
		if err == nil && got.Ours > found.Worst {
			found.Worst, found.Upstream, found.Shape, found.Pod = got.Ours, got.Upstream, shape, shape.String()
			found.Status = fmt.Sprintf("%d nodes searched", got.Searched)
		}
		return got.Ours, err
	}
	end := time.Now().Add(share)
	for _, shape := range hostile.Worst() {
		if shape.Machine == machine {
			shapes = append(shapes, shape)
		}
	}
	for _, shape := range slices.Compact(shapes) {
		if _, err := visit(shape); err != nil {
			return found, err
		}
	}
	hostile.ClimbFrom(found.Shape, s.seed, func(shape hostile.Shape) (int64, bool) {
		var cost time.Duration
		cost, err = visit(shape)
		err = errors.Join(err, context.Cause(ctx))
		return int64(cost), err != nil || time.Now().After(end)
	})
	for range measured {
		if err != nil {
			break
		}
		var again hostile.Cycle
		if again, err = b.MeasureCycle(ctx, found.Shape.Pod("hostile")); err == nil {
			found.Worst = min(found.Worst, again.Ours)
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %d pods, the worst takes %v\n", found.Machine, found.Pods, found.Worst)
	return found, err
}

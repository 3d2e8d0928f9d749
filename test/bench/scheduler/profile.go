// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// takeProfiles takes a CPU profile of each scheduler while they take turns as before, and returns
// them by sides. They are taken apart from the rounds, which they would make slower.
func (d *trial) takeProfiles(ctx context.Context) (raw [2][]byte, err error) {
	group, ctx := errgroup.WithContext(ctx)
	for i, s := range d.sides {
		group.Go(func() (err error) {
			raw[i], err = d.takeProfile(ctx, s)
			return err
		})
	}
	group.Go(func() error { return d.turnFor(ctx, d.bench.profile) })
	return raw, group.Wait()
}

// turnFor lets the sides take turns for some time. The schedulers go on afterwards.
func (d *trial) turnFor(ctx context.Context, span time.Duration) error {
	began := time.Now()
	if err := d.drain(ctx); err != nil {
		return err
	}
	for time.Since(began) < span {
		if _, err := d.turn(ctx); err != nil {
			return err
		}
	}
	return d.resume()
}

// takeProfile takes a CPU profile of a side's scheduler, and writes it to a file. There is nothing
// in it of the time in which that is stopped.
func (d *trial) takeProfile(ctx context.Context, s side) ([]byte, error) {
	text, err := s.get(ctx, fmt.Sprintf("%s?seconds=%.0f", profilePath, d.bench.profile.Seconds()))
	if err != nil {
		return nil, fmt.Errorf("profile the scheduler of %s: %w", s.variant.name, err)
	}
	other := d.variant.name
	if s.variant.name == other {
		other = d.baseline.name
	}
	name := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(s.variant.name + " versus " + other)
	raw := []byte(text)
	return raw, os.WriteFile(filepath.Join(d.bench.out, fmt.Sprintf("%s-%d.pprof", name, d.nodes)), raw, 0o644)
}

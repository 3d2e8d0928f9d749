// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package critest runs the conformance tests of the CRI, critest, twice: against a container
// runtime, and against the same runtime through kubecri; and compares the two, spec by spec. What
// the runtime passes or fails does not matter, only whether kubecri makes a difference.
//
// Both sides are nodes of one cluster, so kubecri is what it is on any node: it has device plugins,
// watches its pods, keeps its record. Only the kubelets are stopped, which would remove the pods of
// others. A registry of our own has the images, as the tests' own cannot be reached.
package critest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// Options say what to run.
type Options struct {
	// Runtime is the container runtime on both sides.
	Runtime cluster.Runtime
	// Focus chooses specs by a regular expression that matches a part of their names. Empty stands
	// for all.
	Focus string
	// Dir takes reports and logs, in a directory of the runtime's name. It must lie in the
	// checkout.
	Dir string
	// Progress receives what is going on.
	Progress io.Writer
}

// repeats is how often a spec is run again, alone, when the sides differ.
const repeats = 4

// seed of the specs' random order, which is the same on both sides.
const seed = 1

// Run starts a cluster, runs the tests, takes the cluster down, and returns what it found. It needs
// root, and the programs of binaries.Critest. A difference is no error.
func Run(ctx context.Context, options Options) (found *Comparison, err error) {
	b, err := openBench(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("compare %s with and without kubecri: %w", options.Runtime, err)
	}
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	found, err = b.compare(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("compare %s with and without kubecri: %w", options.Runtime, err)
	}
	return found, nil
}

func (b *bench) compare(ctx context.Context, options Options) (*Comparison, error) {
	focus, err := regexp.Compile(options.Focus)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	fmt.Fprintf(options.Progress, "%s: running critest on both sides\n", options.Runtime)
	comparison := &Comparison{Runtime: options.Runtime}
	direct, proxied, err := b.run(ctx, "all", options.Focus)
	if err != nil {
		return nil, err
	}
	comparison.add(focus, direct, proxied)
	for round := range repeats {
		unclear := comparison.unclear()
		if len(unclear) == 0 {
			break
		}
		fmt.Fprintf(options.Progress, "%s: the sides differ in %d specs; running them again, %d of %d\n",
			options.Runtime, len(unclear), round+1, repeats)
		direct, proxied, err := b.run(ctx, fmt.Sprintf("again-%d", round+1), focusOn(unclear))
		if err != nil {
			return nil, err
		}
		comparison.addAgain(unclear, direct, proxied)
	}
	comparison.Seconds = time.Since(began).Seconds()
	return comparison, nil
}

// run runs the chosen specs on both sides at the same time.
func (b *bench) run(ctx context.Context, name, focus string) (direct, proxied []Result, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		direct, err = b.runSide(ctx, b.direct, filepath.Join(name, "direct"), focus)
		return err
	})
	group.Go(func() (err error) {
		proxied, err = b.runSide(ctx, b.proxied, filepath.Join(name, "kubecri"), focus)
		return err
	})
	return direct, proxied, group.Wait()
}

// runSide runs the chosen specs on a node, in a directory for what they print and for their report.
func (b *bench) runSide(ctx context.Context, node *cluster.Node, name, focus string) ([]Result, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "critest.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // what it has is for people
	failed := b.ginkgo(ctx, node, dir, focus, log)
	report, err := os.ReadFile(filepath.Join(dir, reportName))
	if err != nil {
		return nil, fmt.Errorf("critest on %s left no report, see %s: %w", node.Name, log.Name(),
			errors.Join(failed, err))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return decode(report)
}

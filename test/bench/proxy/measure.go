// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/kubedevice/kubedevice/test/bench/figures"
)

// The variants to the runtime.
const (
	direct   = "direct"
	splice   = "splice"
	kubecri  = "kubecri"
	reencode = "re-encode"
	other    = "kubecri of -against"
)

// variants are all of them, the baseline first.
var variants = []string{direct, splice, kubecri, reencode, other}

// build is where the programs of a build are.
type build struct {
	program, plugin string
}

// buildIn returns those in the directory of build products.
func buildIn(output string) build {
	return build{
		program: filepath.Join(output, "kubecri"),
		plugin:  filepath.Join(output, "plugins", "simulated", "simgpu.so"),
	}
}

// bench is one run.
type bench struct {
	scratch string
	// builds are those of the variants that are a kubecri.
	builds map[string]build
	// ready is a call that kubecri can answer when all of it has started.
	ready *workload
}

// sample is what one variant cost in one round of one workload.
type sample struct {
	took []time.Duration // sorted
	cpu  time.Duration   // of the proxy, per call
	peak int64           // of the proxy's memory, in bytes
}

// samples are those of all rounds, by workload and variant.
type samples map[string]map[string][]sample

// run measures the workloads whose names fit only.
func (b *bench) run(ctx context.Context, rounds int, only *regexp.Regexp) (*result, error) {
	all, err := workloads()
	if err != nil {
		return nil, err
	}
	b.ready = all[slices.IndexFunc(all, func(w *workload) bool { return w.name == injectedCreate })]
	all = slices.DeleteFunc(all, func(w *workload) bool { return !only.MatchString(w.name) })
	taken := samples{}
	for _, w := range all {
		taken[w.name] = map[string][]sample{}
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "Round %d of %d\n", round+1, rounds)
		if err := b.round(ctx, round, all, taken); err != nil {
			return nil, err
		}
	}
	written, err := measureGrantWrites(ctx, b.scratch)
	if err != nil {
		return nil, err
	}
	return summarize(all, taken, written), nil
}

// round starts everything, takes a sample of each variant for each workload, and stops everything.
func (b *bench) round(ctx context.Context, round int, all []*workload, taken samples) error {
	dir := filepath.Join(b.scratch, fmt.Sprint(round))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	// The name of a socket must be short.
	sockets, err := os.MkdirTemp("", "bench-proxy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sockets)
	upstream := filepath.Join(sockets, "runtime.sock")
	processes := map[string]*process{}
	defer func() {
		for _, p := range processes {
			p.stop()
		}
	}()
	if processes[direct], err = startRole(ctx, roleRuntime, upstream, ""); err != nil {
		delete(processes, direct)
		return err
	}
	for _, role := range []string{roleSplice, roleReencode} {
		p, err := startRole(ctx, role, filepath.Join(sockets, role+".sock"), upstream)
		if err != nil {
			return err
		}
		processes[role] = p
	}
	for variant := range b.builds {
		p, err := b.startKubecri(ctx, variant, dir, upstream)
		if err != nil {
			return fmt.Errorf("%s: %w", variant, err)
		}
		processes[variant] = p
	}
	for _, w := range all {
		for i := range variants {
			variant := variants[(i+round)%len(variants)]
			if processes[variant] == nil {
				continue
			}
			s, err := take(ctx, w, processes[variant])
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.name, variant, err)
			}
			taken[w.name][variant] = append(taken[w.name][variant], *s)
		}
	}
	return nil
}

// take makes the workload's calls over one connection, as the kubelet has one, after a few that do
// not count.
func take(ctx context.Context, w *workload, p *process) (*sample, error) {
	conn, err := dial(p.socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := callAll(ctx, conn, w, w.calls/10+1); err != nil {
		return nil, err
	}
	if err := p.forgetPeak(); err != nil {
		return nil, err
	}
	before, err := figures.CPU(p.command.Process.Pid)
	if err != nil {
		return nil, err
	}
	took, err := callAll(ctx, conn, w, w.calls)
	if err != nil {
		return nil, err
	}
	after, err := figures.CPU(p.command.Process.Pid)
	if err != nil {
		return nil, err
	}
	peak, err := p.peak()
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	return &sample{took: took, cpu: (after - before) / time.Duration(len(took)), peak: peak}, nil
}

// callAll lets each of the workload's callers make so many calls.
func callAll(ctx context.Context, conn *grpc.ClientConn, w *workload, calls int) ([]time.Duration, error) {
	var callers sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	for range w.callers {
		callers.Go(func() {
			for range calls {
				d, err := call(ctx, conn, w)
				mu.Lock()
				took = append(took, d)
				if err != nil {
					failed = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	callers.Wait()
	return took, failed
}

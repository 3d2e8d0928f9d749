// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures what scheduling devices costs, compared with upstream's scheduler that
// counts them and with dynamic resource allocation (DRA).
//
// A real etcd and kube-apiserver run in this process. The nodes have 8 GPUs each: they have an
// inventory for ours, a count for both, and a ResourceSlice for DRA.
//
// A comparison holds a variant, one way to request devices, against a baseline. The schedulers of
// both, upstream's program or ours with the simulated GPUs' plugin as a .so, are processes of their
// own, so CPU is the scheduler's alone. They live side by side for all rounds of the comparison,
// see each other's pods, and bind those that have their name. What is measured is a batch of pods
// at a time: while they are made, both schedulers are stopped (SIGSTOP), so that nothing but
// scheduling is done afterwards; it begins when one of them goes on (SIGCONT), and ends when the
// last pod is bound and the last event about that is written: schedulers write events during their
// work and leave some for later, not equally many, and the API server has as much work with one as
// with a binding. Then the pods are removed, and both go on until they are idle: they have seen all
// that they missed, and the next batch finds an empty cluster that both know. DRA's claims are made
// before the pods, which spares it the controller that makes them of templates. With -full, part of
// the nodes are full of pods that stay.
//
// The API server lives in this process, and a collection of its garbage takes about as long as a
// batch: garbage is collected before each batch, and held while it is measured.
//
// Batches of the two variants alternate, A B, B A, A B, and so are about a second apart: a machine
// whose speed drifts is as fast for one as for the other. The first batch of each, which makes
// caches warm, is not counted. A round has several batches, and each side is first in half of its
// turns. The schedulers' own metrics are read before the first round and after the last; afterwards
// both go on for a CPU profile. Our schedulers seal what they decide, in the mode enforce.
//
// Our scheduler lets its heap grow further than upstream's before it collects garbage. -gogc sets
// one value for both, which shows the cost of scheduling without that difference.
//
// This is upstream's scheduler_perf with the scheduler outside: there, CPU cannot be separated from
// that of the API server, which is most of it, and every variant starts an API server of its own,
// so that variants can't take turns.
//
// It prints a table and writes it, with all numbers as JSON, to the directory -out. It judges
// nothing by its exit status: at the end it says which of the project's goals hold on this machine.
//
// With -whatifs it compares our scheduler with itself: 16 users query one of the two what would be
// if, each as fast as it is answered, from the beginning of a batch until its pods are removed.
// Connections last from one batch to the next, as those of a user's program do. The CPU for the
// answers counts.
//
// With -tenants it compares something else: how many pods without devices our scheduler binds
// alone, together with tenants that create the worst pods of package test/hostile, and with tenants
// that create as many pods of the same size that request no device and fit nowhere. No scheduler is
// stopped then: 192 pods without devices are on their way at any time, and each that is bound is
// replaced. The periods take turns, and nodes are those of package test/hostile, no two alike. The
// exit status is 1 when the worst pods leave less than the goal of what the others leave.
//
// With -shared-rate it measures a third thing: how many pods lose at the kubelet's admission when
// upstream's scheduler binds those without devices and ours those with devices to the same nodes.
// The nodes' kubelets are this process: they make the kubelet's own check, and start no container.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
	"github.com/kubedevice/kubedevice/test/command"
)

func main() {
	command.Main("bench scheduler", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("scheduler", flag.ContinueOnError)
	output := flags.String("output", "../_output", "directory of the project's build products")
	out := flags.String("out", "", "directory for the results (default: bench in -output)")
	name := flags.String("name", "scheduler", "name of the results' files, without .txt and .json")
	only := flags.String("only", "",
		"make the comparisons whose text \"variant / baseline\" fits this regular expression alone")
	rounds := flags.Int("rounds", 20, "how often both variants of a comparison are measured")
	nodes := flags.String("nodes", "100,500", "numbers of nodes, one after another")
	pods := flags.Int("pods", 440,
		"pods of each variant in a round, half of them when compared with DRA, in as many batches as the cluster "+
			"cannot hold them at once")
	full := flags.Float64("full", 0,
		"part of the nodes whose GPUs are all in use already, by pods that stay; comparisons with DRA are left out, "+
			"which would not know of them")
	noCache := flags.Bool("no-verdict-cache", false,
		"run our scheduler with --device-verdict-cache=false: every node is evaluated for every pod")
	profile := flags.Duration("profile", 20*time.Second,
		"after the rounds of each comparison, go on for so long and take a CPU profile of both schedulers, into "+
			"-out: by that of ours the plugin's own time is known; 0 for none")
	crowd := tenants{}
	flags.IntVar(&crowd.count, "tenants", 0,
		"compare pods without devices alone, with so many tenants that create the worst pods, in -rounds periods, "+
			"with periods in which they create other pods; the exit status is 1 when the goal is missed")
	flags.Float64Var(&crowd.rate, "tenant-rate", 1, "pods that each of the -tenants creates in a second")
	flags.DurationVar(&crowd.period, "tenant-period", 3*time.Second, "how long a period with -tenants is")
	whatIfs := flags.Int("whatifs", 0,
		"compare our scheduler, while it answers as many what-ifs as it can, with itself, in -rounds "+
			"rounds or more, until so many what-ifs were answered; 0 for the other comparisons")
	sharing := shared{}
	flags.Float64Var(&sharing.rate, "shared-rate", 0,
		"count pods that lose at the kubelet alone, when upstream's scheduler and ours share nodes and so many pods "+
			"are created in a second; on one number of -nodes")
	flags.DurationVar(&sharing.period, "shared-period", 20*time.Second, "how long a period with -shared-rate is")
	gogc := flags.Int("gogc", 0, "GOGC of all schedulers, ours and upstream's; 0 for the default of each")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	sizes, err := numbers(*nodes)
	if err != nil {
		return fmt.Errorf("-nodes: %w", err)
	}
	if *rounds < 1 || *pods < 10 {
		return fmt.Errorf("-rounds is %d and -pods %d: use at least 1 and 10", *rounds, *pods)
	}
	if *out == "" {
		*out = filepath.Join(*output, "bench")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	if *profile != 0 && *profile < time.Second {
		return fmt.Errorf("-profile is %v: use a second or more", *profile)
	}
	if *full < 0 || *full > 0.9 {
		return fmt.Errorf("-full is %v: use a part from 0 to 0.9", *full)
	}
	b := &bench{out: *out, rounds: *rounds, pods: *pods, profile: *profile, full: *full, noCache: *noCache,
		whatIfs: *whatIfs}
	machine := fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version())
	if *gogc < 0 {
		return fmt.Errorf("-gogc is %d: use a percentage, or 0 for the default", *gogc)
	} else if *gogc > 0 {
		b.environment = []string{fmt.Sprint("GOGC=", *gogc)}
		machine += fmt.Sprintf(", GOGC=%d for all schedulers", *gogc)
	}
	if b.programs, err = findPrograms(*output); err != nil {
		return err
	}
	if crowd.count > 0 {
		return b.runTenants(ctx, crowd, sizes, filepath.Join(*out, *name))
	}
	if sharing.rate > 0 {
		return b.runShared(ctx, sharing, sizes, filepath.Join(*out, *name))
	}
	if b.whatIfs > 0 {
		b.comparisons = []comparison{withWhatIfs}
	} else {
		b.comparisons = b.chosen(pattern)
	}
	if len(b.comparisons) == 0 {
		return fmt.Errorf("-only: no comparison fits %q", *only)
	}
	var measured []report.Size
	if err := b.run(ctx, func(ctx context.Context) (err error) {
		measured, err = b.runSizes(ctx, sizes)
		return err
	}); err != nil {
		return err
	}
	result := report.New(machine, *rounds, measured)
	return write(result, filepath.Join(*out, *name))
}

// chosen returns the comparisons that fit a pattern.
func (b *bench) chosen(pattern *regexp.Regexp) (chosen []comparison) {
	for _, c := range comparisons {
		if pattern.MatchString(c.reported().String()) && (b.full == 0 || !c.baseline.usesClaims()) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// write prints a result, and writes it to files of this name.
func write(result interface {
	Print(io.Writer) error
	WriteJSON(path string) error
}, name string) error {
	table, err := os.Create(name + ".txt")
	if err != nil {
		return err
	}
	err = result.Print(io.MultiWriter(os.Stdout, table))
	return errors.Join(err, table.Close(), result.WriteJSON(name+".json"))
}

// runTenants measures pods without devices together with tenants.
func (b *bench) runTenants(ctx context.Context, crowd tenants, sizes []int, name string) error {
	if len(sizes) != 1 || crowd.rate <= 0 || crowd.period < time.Second {
		return fmt.Errorf("-nodes has %d numbers, -tenant-rate is %g and -tenant-period %v: use one number, "+
			"more than 0, and a second or more", len(sizes), crowd.rate, crowd.period)
	}
	var result report.Tenants
	if err := b.run(ctx, func(ctx context.Context) (err error) {
		result, err = crowd.run(ctx, b, sizes[0])
		return err
	}); err != nil {
		return err
	}
	return errors.Join(write(&result, name), result.Missed())
}

// runShared counts pods that lose at the kubelet.
func (b *bench) runShared(ctx context.Context, sharing shared, sizes []int, name string) error {
	if len(sizes) != 1 || sharing.period < time.Second {
		return fmt.Errorf("-nodes has %d numbers and -shared-period is %v: use one number, and a second or more",
			len(sizes), sharing.period)
	}
	var result report.Shared
	if err := b.run(ctx, func(ctx context.Context) (err error) {
		result, err = sharing.run(ctx, b, sizes[0])
		return err
	}); err != nil {
		return err
	}
	return write(&result, name)
}

// numbers reads positive numbers with commas between them.
func numbers(text string) ([]int, error) {
	var list []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		if n < 1 {
			return nil, fmt.Errorf("%d is not positive", n)
		}
		list = append(list, n)
	}
	return list, nil
}

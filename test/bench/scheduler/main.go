// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures what scheduling devices costs, beside upstream's scheduler that counts them and beside
// dynamic resource allocation (DRA).
//
// A real etcd and kube-apiserver run in this process. Each way of asking for devices has, in each of several rounds, a
// scheduler that is started anew, as a process of its own: upstream's program, or ours with the simulated GPUs' plugin as a
// .so. So CPU is the scheduler's alone, and nothing that one way leaves behind costs another. What is kept from round to
// round are the nodes, of 8 GPUs each: they carry an inventory for ours, a count for both, and a ResourceSlice for DRA.
//
// In a round, the first tenth of the pods makes caches warm and inventories known. Then the scheduler's process is stopped while the other pods
// are made, so that nothing but scheduling is done afterwards; what is measured begins when it goes on, and ends when the last pod
// is bound. DRA's claims are made beforehand too, which spares it the controller that makes them of templates.
//
// This is upstream's scheduler_perf with the scheduler outside: there, CPU can't be told from that of the API server, which is most of
// it, and every way starts an API server of its own, so that rounds are too long to take turns often.
//
// It prints a table and writes it, with all numbers as JSON, to the folder -out. It judges nothing by its exit status: at the
// end it says which of the project's goals hold on this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench scheduler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("scheduler", flag.ContinueOnError)
	output := flags.String("output", "../_output", "folder of the project's build products")
	out := flags.String("out", "", "folder for the results (default: bench in -output)")
	name := flags.String("name", "scheduler", "name of the results' files, without .txt and .json")
	only := flags.String("only", "", "measure the ways whose names fit this regular expression alone")
	rounds := flags.Int("rounds", 20, "how often each way is measured")
	nodes := flags.String("nodes", "100,500", "numbers of nodes, one after another")
	pods := flags.Int("pods", 440, "pods in a round; fewer where not so many fit")
	profile := flags.Duration("profile", 0, "take a CPU profile of this length in each round, into -out; rounds become longer")
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
	b := &bench{out: *out, rounds: *rounds, pods: *pods, profile: *profile}
	for _, w := range ways {
		if pattern.MatchString(w.name) {
			b.ways = append(b.ways, w)
		}
	}
	if len(b.ways) == 0 {
		return fmt.Errorf("-only: no way's name fits %q", *only)
	}
	if b.programs, err = findPrograms(*output); err != nil {
		return err
	}
	measured, err := b.run(ctx, sizes)
	if err != nil {
		return err
	}
	machine := fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version())
	result := report.New(machine, *rounds, wayNames(), comparisons, measured)
	table, err := os.Create(filepath.Join(*out, *name+".txt"))
	if err != nil {
		return err
	}
	if err := result.Print(io.MultiWriter(os.Stdout, table)); err != nil {
		return err
	}
	if err := table.Close(); err != nil {
		return err
	}
	return result.WriteJSON(filepath.Join(*out, *name+".json"))
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

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command upstreamcases runs cases of upstream's own benchmark of the scheduler, scheduler_perf,
// with upstream's plugins alone and with ours in addition.
//
// The cases are those of the version of Kubernetes that we build with, and have upstream's names.
// Each trial is a process of its own: package trial, which is upstream's code with our plugin in
// its registry or without it. It starts an etcd, an API server and a scheduler, as upstream does.
// The two variants alternate, A B, B A, A B, so that a machine whose speed drifts is as fast for
// one as for the other.
//
// Nodes with extended resources also have an inventory, so that for our plugin these are devices,
// of which it chooses one. No other case has devices: it shows what pods cost that do not use us.
//
// API server and scheduler share a process, so its CPU is that of both, and the collector of
// garbage has the same settings with both variants. Command scheduler measures the schedulers'
// own.
//
// It prints a table and writes it, with all numbers as JSON, to the directory -out. It judges
// nothing by its exit status.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/kubedevice/kubedevice/test/command"
)

func main() {
	command.Main("bench upstream cases", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("upstreamcases", flag.ContinueOnError)
	output := flags.String("output", "../_output", "directory of the project's build products")
	out := flags.String("out", "", "directory for the results (default: bench in -output)")
	only := flags.String("only", "", "run the cases whose names fit this regular expression alone")
	full := flags.Bool("full", false, "run the sizes that upstream publishes, of up to 5,000 nodes")
	rounds := flags.Int("rounds", 5, "how often each case runs with either variant")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	chosen := casesOf(*full, pattern)
	if len(chosen) == 0 {
		return fmt.Errorf("-only: no case fits %q", *only)
	}
	if *out == "" {
		*out = filepath.Join(*output, "bench")
	}
	directory, err := filepath.Abs(*output)
	if err != nil {
		return err
	}
	runner, err := newRunner(ctx, directory)
	if err != nil {
		return err
	}
	defer runner.close()
	result := &Result{Machine: machine()}
	for _, c := range chosen {
		compared, err := runner.compare(ctx, c, *rounds)
		if err != nil {
			return err
		}
		result.Cases = append(result.Cases, compared)
	}
	if err := result.print(os.Stdout); err != nil {
		return err
	}
	return result.write(*out, "upstream-cases")
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command enrolments enrols nodes of a real cluster, which it builds, starts and takes down, and
// has them leave, while pods with devices run and programs are killed. It reports what became of
// all. Its exit status is 1 unless everything passed.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/kubedevice/kubedevice/test/command"
	"github.com/kubedevice/kubedevice/test/enrolments"
)

func main() { command.Main("enrolments", run) }

func run(ctx context.Context) error {
	options, err := enrolments.Full()
	if err != nil {
		return err
	}
	flag.IntVar(&options.Rounds, "rounds", options.Rounds, "how often a node is enrolled and leaves")
	flag.IntVar(&options.Nodes, "nodes", options.Nodes, "how many nodes there are, side by side")
	flag.BoolVar(&options.Kills, "kills", options.Kills, "whether programs are killed at random times")
	flag.Uint64Var(&options.Seed, "seed", options.Seed, "of what is chosen at random")
	flag.Parse()
	return enrolments.Run(ctx, os.Stdout, options)
}

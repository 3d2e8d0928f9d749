// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command hostile looks for the pods that cost the scheduler most, and compares them with ordinary
// ones.
//
// For each kind of machine and each part of a scheduling cycle it climbs from ordinary pods to
// costly ones, see package test/hostile, for an equal share of the time. The costliest shapes are
// then scheduled on a whole cluster, and mutated there. All times are CPU times of the process, so
// what else the machine does adds little.
//
// It prints a table and writes it, with all numbers as JSON, to the directory -out. The exit status
// is 1 when a pod costs more than an ordinary one of the same machine by more than its bound.
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
	"time"

	"github.com/kubedevice/kubedevice/test/command"
)

func main() {
	command.Main("bench hostile", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("hostile", flag.ContinueOnError)
	s := search{}
	output := flags.String("output", "../_output", "directory of the project's build products")
	out := flags.String("out", "", "directory for the results (default: bench in -output)")
	flags.DurationVar(&s.time, "time", 5*time.Minute, "how long to search")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the search: the shapes come in an order that depends on it and on "+
		"what they cost")
	flags.IntVar(&s.nodes, "nodes", 5000, "nodes of the cluster for whole cycles")
	flags.IntVar(&s.victims, "victims", 100, "pods on a node that can be evicted")
	only := flags.String("only", "",
		`search for machines and parts whose text, such as "8 GPUs, fit" or "8 GPUs, cycle", fits this regular `+
			"expression alone; each has the time that it has among all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if s.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if s.time < time.Second || s.nodes < 1 || s.victims < 1 {
		return fmt.Errorf("-time is %v, -nodes %d and -victims %d: use a second, 1 and 1 or more", s.time, s.nodes,
			s.victims)
	}
	if *out == "" {
		*out = filepath.Join(*output, "bench")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	result, err := s.run(ctx)
	if err != nil {
		return err
	}
	table, err := os.Create(filepath.Join(*out, "hostile.txt"))
	if err != nil {
		return err
	}
	err = result.print(io.MultiWriter(os.Stdout, table))
	return errors.Join(err, table.Close(), result.writeJSON(filepath.Join(*out, "hostile.json")), result.exceeded())
}

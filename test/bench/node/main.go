// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command node measures what kubecri costs a node on which nothing happens.
//
// It starts a real cluster with one node of 8 simulated GPUs, runs pods on it, 8 of them with a GPU
// each, and waits until the node is quiet. Then it measures for -duration the CPU time and the
// memory of kubecri, and of the kubelet and containerd; the calls that the kubelet makes
// through kubecri; and the writes to the API server by each client, from the API server's audit
// log. It does so for each number of pods in -pods.
//
// It prints a table and writes it, with all numbers as JSON, to the directory -out. Its exit status
// does not depend on the figures: at the end it says which of the project's goals hold on this
// machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/command"
)

func main() {
	command.Main("bench node", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	out := flags.String("out", "../_output/bench", "directory for the results")
	pods := flags.String("pods", "30,110", "numbers of pods, in ascending order; 8 of the first ones hold a GPU")
	quiet := flags.Duration("quiet", 30*time.Second, "time between the start of the last pod and the measurement")
	duration := flags.Duration("duration", 2*time.Minute, "how long each measurement takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	counts, err := ascending(*pods)
	if err != nil {
		return fmt.Errorf("-pods: %w", err)
	}
	if os.Geteuid() != 0 {
		return errors.New("the cluster needs namespaces and device nodes: run it as root")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	options, err := clustertest.Options("bench-node", 1)
	if err != nil {
		return err
	}
	if err := clustertest.Build(ctx, options.Programs, options.Extras()...); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(*out, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if scratch, err = filepath.Abs(scratch); err != nil {
		return err
	}
	b := &bench{options: options, scratch: scratch, quiet: *quiet, duration: *duration}
	r, err := b.run(ctx, counts)
	if err != nil {
		return err
	}
	table, err := os.Create(filepath.Join(*out, "node.txt"))
	if err != nil {
		return err
	}
	if err := errors.Join(r.print(io.MultiWriter(os.Stdout, table)), table.Close()); err != nil {
		return err
	}
	return r.writeJSON(filepath.Join(*out, "node.json"))
}

// ascending parses positive numbers with commas between them, each larger than the one before.
func ascending(text string) ([]int, error) {
	var list []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		if last := append([]int{0}, list...)[len(list)]; n <= last {
			return nil, fmt.Errorf("%d is not more than %d", n, last)
		}
		list = append(list, n)
	}
	return list, nil
}

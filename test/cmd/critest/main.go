// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command critest compares container runtimes with and without kubecri by the conformance tests of
// the CRI: see package critest.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/command"
	"github.com/kubedevice/kubedevice/test/critest"
)

func main() {
	command.Main("critest", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("critest", pflag.ContinueOnError)
	runtimes := flags.StringSlice("runtime", []string{string(cluster.Containerd24), string(cluster.Containerd17)},
		"container runtimes")
	focus := flags.String("focus", "",
		"regular expression that matches a part of the names of the specs to run (default all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	extras := []binaries.Extra{binaries.Critest}
	if slices.Contains(*runtimes, string(cluster.Containerd17)) {
		extras = append(extras, binaries.Containerd17)
	}
	programs := filepath.Join(root, "_output", "cluster", "bin")
	if err := binaries.Build(ctx, filepath.Join(root, "test"), programs, os.Stderr, extras...); err != nil {
		return err
	}
	dir := filepath.Join(root, "_output", "critest")
	var errs []error
	for _, runtime := range *runtimes {
		found, err := critest.Run(ctx, critest.Options{Runtime: cluster.Runtime(runtime), Focus: *focus, Dir: dir,
			Progress: os.Stderr})
		if err != nil {
			return err
		}
		if err := errors.Join(found.Write(dir), found.Print(os.Stdout)); err != nil {
			return err
		}
		errs = append(errs, found.Check())
	}
	fmt.Println("\nTables and JSON are in", strings.TrimPrefix(dir, root+"/"))
	return errors.Join(errs...)
}

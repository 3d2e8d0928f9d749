// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command matrix runs end-to-end tests on older and newer Kubernetes and containerd, and enters
// what came of them in docs/deploy/versions.md: see package matrix.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kubedevice/kubedevice/test/command"
	"github.com/kubedevice/kubedevice/test/matrix"
)

func main() {
	command.Main("matrix", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("matrix", pflag.ContinueOnError)
	kubernetes := flags.StringSlice("kubernetes", nil, "only these versions of Kubernetes, such as 1.34 (default all)")
	runtimes := flags.StringSlice("runtime", nil, "only these container runtimes, such as containerd-1.7 (default all)")
	only := flags.StringSlice("only", nil, "only these stories, such as preemption (default all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := func(among []string, name string) bool { return len(among) == 0 || slices.Contains(among, name) }
	settings := slices.DeleteFunc(matrix.Settings(), func(s matrix.Setting) bool {
		return !chosen(*kubernetes, string(s.Kubernetes)) || !chosen(*runtimes, string(s.Runtime))
	})
	stories := slices.DeleteFunc(matrix.Stories(), func(s matrix.Story) bool { return !chosen(*only, s.ID) })
	if len(settings) == 0 || len(stories) == 0 {
		return fmt.Errorf("nothing to run: %d settings, %d stories: look at what the flags name", len(settings),
			len(stories))
	}
	return matrix.Run(ctx, os.Stdout, settings, stories)
}

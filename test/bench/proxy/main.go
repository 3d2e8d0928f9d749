// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command proxy measures what a proxy between the kubelet and the container runtime costs.
//
// It compares four variants to a runtime that answers at once with messages it has ready: the
// runtime's own socket (direct); a program that copies bytes between two sockets (splice), which is
// the least that any second process can cost; kubecri, the real program with its device plugin,
// admission, checkpoint and metrics; and a proxy of the usual kind, which decodes and encodes every
// message (re-encode). Each is a process of its own. All take turns in each of several rounds, in
// which they are started again, and the client, which does not decode, is the same for all.
//
// With -against=DIR, the kubecri of another build takes turns with them, and what a call of this
// build takes is printed as a ratio to it, with its bounds: so a change is compared with the commit
// before.
//
// It prints a table and writes it, with all numbers as JSON, to the directory -out. It judges
// nothing by its exit status: at the end it says which of the project's goals hold on this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/test/command"
)

func main() {
	// What kubecri's own packages log in this process is of no interest here.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	command.Main("bench proxy", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	if len(args) == 4 && args[0] == roleCommand {
		return serveRole(ctx, args[1], args[2], args[3])
	}
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	output := flags.String("output", "../_output", "directory of the project's build products")
	out := flags.String("out", "", "directory for the results (default: bench in -output)")
	only := flags.String("only", "",
		"measure the workloads whose names fit this regular expression alone; there are no goals then")
	against := flags.String("against", "", "the -output of another build, to compare its kubecri with")
	rounds := flags.Int("rounds", 5, "how often everything is started and measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the device plugin that kubecri is measured with makes device nodes: run it as root")
	}
	if *out == "" {
		*out = filepath.Join(*output, "bench")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	b := &bench{builds: map[string]build{kubecri: buildIn(*output)}}
	if *against != "" {
		b.builds[other] = buildIn(*against)
	}
	for _, build := range b.builds {
		for _, built := range []string{build.program, build.plugin} {
			if _, err := os.Stat(built); err != nil {
				return fmt.Errorf("%w; run make build", err)
			}
		}
	}
	// On the same disk as the results, so that files are really written: a temporary directory may
	// be memory.
	b.scratch, err = os.MkdirTemp(*out, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.scratch)
	result, err := b.run(ctx, *rounds, pattern)
	if err != nil {
		return err
	}
	table, err := os.Create(filepath.Join(*out, "proxy.txt"))
	if err != nil {
		return err
	}
	if err := result.print(io.MultiWriter(os.Stdout, table)); err != nil {
		return err
	}
	if err := table.Close(); err != nil {
		return err
	}
	return result.writeJSON(filepath.Join(*out, "proxy.json"))
}

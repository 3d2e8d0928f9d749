// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command attack makes a table of attempts on real clusters, which it builds, starts and takes
// down, and prints what came of them. Its exit status is 1 unless each came out as it must.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/test/attack"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/command"
)

func main() {
	// What client-go says of watches that end is of no interest here.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	command.Main("attack", run)
}

func run(ctx context.Context) error {
	options, err := attack.Full()
	if err != nil {
		return err
	}
	only := flag.String("only", "", "only attempts whose ID has one of these texts in it, separated by commas")
	settings := flag.String("settings", "",
		"only these settings, separated by commas; a dot may stand for each space in their names")
	modes := flag.String("modes", "", "only these modes of kubecri, separated by commas: cri, nri")
	print := flag.Bool("print", false, "print the table as test/attack/README.md has it, and attack nothing")
	flag.Parse()
	if *print {
		fmt.Print(attack.Markdown(options.Attempts))
		return nil
	}
	if *only != "" {
		options.Attempts = slices.DeleteFunc(options.Attempts, func(a *attack.Attempt) bool {
			return !slices.ContainsFunc(strings.Split(*only, ","), func(text string) bool {
				return strings.Contains(a.ID, text)
			})
		})
	}
	if *settings != "" {
		options.Settings = nil
		for setting := range strings.SplitSeq(*settings, ",") {
			options.Settings = append(options.Settings, attack.Setting(strings.ReplaceAll(setting, ".", " ")))
		}
	}
	if *modes != "" {
		options.Modes = nil
		for mode := range strings.SplitSeq(*modes, ",") {
			options.Modes = append(options.Modes, cluster.Mode(mode))
		}
	}
	return attack.Run(ctx, os.Stdout, options)
}

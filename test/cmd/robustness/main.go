// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command robustness kills kubecri and the container runtime again and again while pods with
// devices start on a real cluster, which it builds, starts and takes down, and reports what became
// of them. Its exit status is 1 unless everything passed.
package main

import (
	"context"
	"flag"
	"os"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/test/command"
	"github.com/kubedevice/kubedevice/test/robustness"
)

func main() { command.Main("robustness", run) }

func run(ctx context.Context) error {
	options, err := robustness.Full()
	if err != nil {
		return err
	}
	points := flag.String("points", "",
		"only these moments at which kubecri is killed, separated by commas, or none; empty for all")
	flag.IntVar(&options.Kills, "kills", options.Kills, "how often kubecri is killed at each of them")
	flag.IntVar(&options.Creations, "creations", options.Creations,
		"how many containers are created meanwhile, an even number")
	flag.BoolVar(&options.Upgrades, "upgrades", options.Upgrades, "whether kubecri is upgraded while pods are created")
	flag.BoolVar(&options.Releases, "releases", options.Releases,
		"whether scheduler and kubecri go to the release before and come back")
	flag.BoolVar(&options.Runtime, "runtime", options.Runtime, "whether the container runtime is killed")
	flag.Parse()
	if *points != "" {
		options.Points = nil
	}
	if *points != "" && *points != "none" {
		for point := range strings.SplitSeq(*points, ",") {
			options.Points = append(options.Points, failpoint.Point(point))
		}
	}
	return robustness.Run(ctx, os.Stdout, options)
}

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
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/command"
	"github.com/kubedevice/kubedevice/test/robustness"
)

func main() { command.Main("robustness", run) }

func run(ctx context.Context) error {
	options, err := robustness.Full(cluster.ModeCRI)
	if err != nil {
		return err
	}
	mode := flag.String("mode", string(options.Mode), "the mode of kubecri, cri or nri")
	points := flag.String("points", "",
		"only these failpoints at which kubecri is killed, separated by commas, or none; empty for all")
	flag.IntVar(&options.Kills, "kills", options.Kills, "how often kubecri is killed at each of them")
	flag.IntVar(&options.Creations, "creations", options.Creations,
		"how many containers are created meanwhile, an even number")
	flag.BoolVar(&options.Upgrades, "upgrades", options.Upgrades, "whether kubecri is upgraded while pods are created")
	flag.BoolVar(&options.Releases, "releases", options.Releases,
		"whether scheduler and kubecri go to the release before, which has the mode cri alone, and come back")
	flag.BoolVar(&options.Runtime, "runtime", options.Runtime, "whether the container runtime is killed")
	flag.Parse()
	full, err := robustness.Full(cluster.Mode(*mode))
	if err != nil {
		return err
	}
	options.Mode, options.Points, options.Dir = full.Mode, full.Points, full.Dir
	options.Releases = options.Releases && full.Releases
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

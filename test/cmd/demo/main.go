// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows KubeDevice's main job on a real cluster, which it builds, starts and takes
// down; with -keep, which "make demo" gives it where KEEP is set, the cluster stays.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/kubedevice/kubedevice/test/command"
	"github.com/kubedevice/kubedevice/test/demo"
)

func main() {
	keep := flag.Bool("keep", false, "do not take the cluster down")
	flag.Parse()
	command.Main("demo", func(ctx context.Context) error {
		if err := demo.Run(ctx, os.Stdout, *keep); err != nil {
			return err
		}
		fmt.Println("\nAll as it should be: every container has exactly the devices that the scheduler chose.")
		return nil
	})
}

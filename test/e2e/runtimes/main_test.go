// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimes tests KubeDevice on container runtimes other than the one that all other tests
// run on, and that kubecri makes no difference to a runtime, by some of the CRI's own conformance
// tests.
package runtimes

import (
	"fmt"
	"os"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is a cluster of one node with containerd 1.7 and 8 simulated GPUs.
	shared *cluster.Cluster
	// directory has its files.
	directory string
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	if code, skipped := clustertest.Skipped(); skipped {
		return code
	}
	options, err := clustertest.Options("e2e-runtimes", 1)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	directory = options.Dir
	plugins, err := newPlugins()
	defer os.RemoveAll(plugins) //nolint:errcheck // files of no value in the directory for such
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	options.Visible = append(options.Visible, plugins)
	options.Nodes[0].Runtime = cluster.Containerd17
	options.Nodes[0].Kubecri.Args = []string{"--cridevices=" + plugins}
	return clustertest.Run(m, options, func(c *cluster.Cluster) { shared = c })
}

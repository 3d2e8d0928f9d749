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
	// shared is a cluster of two nodes with 8 simulated GPUs each: containerd 1.7 on the first, 2.1
	// on the second.
	shared *cluster.Cluster
	// directory has its files.
	directory string
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	if code, skipped := clustertest.Skipped(); skipped {
		return code
	}
	options, err := clustertest.Options("e2e-runtimes", 2)
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
	options.Nodes[0].Runtime, options.Nodes[1].Runtime = cluster.Containerd17, cluster.Containerd23
	for i := range options.Nodes {
		options.Nodes[i].Kubecri.Args = []string{"--cridevices=" + plugins}
	}
	return clustertest.Run(m, options, func(c *cluster.Cluster) { shared = c })
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimes tests KubeDevice on container runtimes other than the one that all other tests
// run on, and that kubecri makes no difference to a runtime, by some of the CRI's own conformance
// tests.
package runtimes

import (
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

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(plugins string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-runtimes", 2)
	if err != nil {
		return options, err
	}
	directory = options.Dir
	options.Visible = append(options.Visible, plugins)
	options.Nodes[0].Runtime, options.Nodes[1].Runtime = cluster.Containerd17, cluster.Containerd23
	for i := range options.Nodes {
		options.Nodes[i].Kubecri.Args = []string{"--cridevices=" + plugins}
	}
	return options, clustertest.AddDevicePlugins(plugins, "testdata/cdi")
}

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

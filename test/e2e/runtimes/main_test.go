// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimes tests KubeDevice on container runtimes other than the one that all other tests run on, and that kubecri makes no
// difference to a runtime, by some of the CRI's own conformance tests.
package runtimes

import (
	"fmt"
	"os"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// shared is a cluster of one node with containerd 1.7 and 8 simulated GPUs.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	options, err := clustertest.Options("e2e-runtimes", 1)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	options.Nodes[0].Runtime = cluster.Containerd17
	os.Exit(clustertest.Run(m, options, func(c *cluster.Cluster) { shared = c }))
}

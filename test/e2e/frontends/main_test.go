// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package frontends tests on a real cluster that pods get their devices where kubecri is an NRI
// plugin of the container runtime, as they do where it is a proxy for the CRI.
package frontends

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

var (
	// shared is a cluster of two nodes with 8 simulated GPUs each. On the first kubecri is an NRI
	// plugin, on the second a proxy.
	shared *cluster.Cluster
	// observer reads the pods of shared.
	observer *observe.Observer
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-frontends", 2)
	if err != nil {
		return options, err
	}
	options.Nodes[0].Mode, options.Nodes[1].Mode = cluster.ModeNRI, cluster.ModeCRI
	return options, nil
}

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 5 * time.Minute

// begin returns the context of a test, which ends with it or when the test's timeout expires.
func begin(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	if observer == nil {
		var err error
		if observer, err = observe.New(ctx, shared); err != nil {
			t.Fatal(err)
		}
	}
	return ctx
}

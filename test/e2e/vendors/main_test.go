// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vendors tests on a real cluster that vendors' device plugins, as their makers publish
// them, serve pods through KubeDevice: with the devices that the scheduler chose, through crashes,
// reboots and broken hardware.
package vendors

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is the cluster of all tests of this package. It has no plugins of KubeDevice's own. A
	// test that breaks something repairs it before it ends.
	shared *cluster.Cluster
	// nodes are its nodes with their hardware and plugins, and kubecri is what runs on each.
	nodes   []*node
	kubecri cluster.Program
	// onePlugin says that the kubelets know one plugin of a resource, and lose it when another one
	// of that resource leaves them, as those before 1.37 do.
	onePlugin bool
	// dir has the files of the test.
	dir string
)

func TestMain(m *testing.M) {
	code := clustertest.Main(m, prepare, use)
	for _, id := range sampleFiles {
		os.Remove(id)
	}
	os.Exit(code)
}

func prepare(directory string) (cluster.Options, error) {
	dir = directory
	options, err := clustertest.HostedOptions("e2e-vendors", 2, dir)
	if err != nil {
		return options, err
	}
	onePlugin = options.Kubernetes != cluster.Kubernetes137
	kubecri = *options.Nodes[0].Kubecri
	return options, clustertest.Build(context.Background(), options.Programs, binaries.DevicePlugins)
}

// use furnishes the nodes for all plugins, but only the first for the example: its devices are
// files in /tmp, which nodes share.
func use(c *cluster.Cluster) error {
	shared = c
	for i, n := range shared.Nodes {
		furnished, err := furnish(n, filepath.Join(dir, n.Name))
		if err != nil {
			return err
		}
		if i > 0 {
			delete(furnished.plugins, sample)
		}
		nodes = append(nodes, furnished)
	}
	return nil
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 6 * time.Minute

// begin returns the context of a test, which ends with it or when the test's timeout expires. It
// waits until the nodes offer all devices, and keeps their plugins and kubelets running as long as
// the test.
func begin(t *testing.T) context.Context {
	t.Helper()
	return beginWith(t, timeout)
}

// beginWith is begin for a test that needs a longer timeout.
func beginWith(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var keepers sync.WaitGroup
	t.Cleanup(keepers.Wait)
	t.Cleanup(end)
	for _, n := range nodes {
		keepers.Go(func() { n.keepPrograms(life) })
	}
	for _, n := range nodes {
		n.awaitAll(ctx, t)
	}
	return ctx
}

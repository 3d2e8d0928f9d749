// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vendors tests on a real cluster that vendors' device plugins, as their makers publish
// them, serve pods through KubeDevice: with the devices that the scheduler chose, through crashes,
// reboots and broken hardware.
package vendors

import (
	"context"
	"fmt"
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
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "vendors")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // files of no value in the directory for such
	options, err := clustertest.HostedOptions("e2e-vendors", 2, dir)
	if err != nil {
		return fail(err)
	}
	onePlugin = options.Kubernetes != cluster.Kubernetes137
	kubecri = *options.Nodes[0].Kubecri
	if _, skipped := clustertest.Skipped(); !skipped {
		if err := clustertest.Build(context.Background(), options.Programs, binaries.DevicePlugins); err != nil {
			return fail(err)
		}
	}
	var started error
	code := clustertest.Run(m, options, func(c *cluster.Cluster) {
		shared = c
		started = furnishNodes(dir)
		if started != nil {
			fail(started)
		}
	})
	for _, id := range sampleFiles {
		os.Remove(id) //nolint:errcheck // it need not be there
	}
	if started != nil {
		return 1
	}
	return code
}

// furnishNodes furnishes the nodes for all plugins, but only the first for the example: its devices
// are files in /tmp, which nodes share.
func furnishNodes(dir string) error {
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

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "FAIL:", err)
	return 1
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 3 * time.Minute

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

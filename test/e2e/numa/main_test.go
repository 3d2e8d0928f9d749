// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package numa tests on a real cluster that pods get devices of several device plugins on one NUMA
// node, or are rejected with the reason, in every state of the node; and that exporters are
// see all of them.
package numa

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is the cluster of all tests of this package. It has no plugins of KubeDevice's own.
	shared *cluster.Cluster
	// nodes are its nodes with their plugins.
	nodes []*node
	// dir has the files of the test.
	dir string
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(directory string) (cluster.Options, error) {
	dir = directory
	options, err := clustertest.HostedOptions("e2e-numa", 2, dir)
	if err != nil {
		return options, err
	}
	return options, buildPlugin(dir)
}

func use(c *cluster.Cluster) error {
	shared = c
	for _, n := range c.Nodes {
		nodes = append(nodes, newNode(n, dir))
	}
	return nil
}

// buildPlugin builds the device plugin that all of the nodes' are.
func buildPlugin(dir string) error {
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "plugin"), "./testdata/plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the plugin: %w\n%s", err, said)
	}
	return nil
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 6 * time.Minute

// begin returns the context of a test, which ends with it or when the test's timeout expires. It
// waits until all plugins are there that a node has, with all devices healthy.
func begin(t *testing.T, n *node) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	n.startPlugins(ctx, t)
	n.pods = map[*corev1.Pod][]*device{}
	n.setHealth(t, func(*device) bool { return true })
	n.awaitDevices(ctx, t)
	return ctx
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests KubeDevice on a real cluster, through every real component.
package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// shared is the cluster of all tests of this package. A test that breaks something repairs it
// before it ends.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	if dir := os.Getenv(launcherVariable); dir != "" {
		launch(dir)
		return
	}
	os.Exit(clustertest.Main(m, prepare, use))
}

func prepare(string) (cluster.Options, error) { return clustertest.Options("e2e", 2) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 2 * time.Minute

// testContext returns a context that ends with the test, or when the test's timeout expires.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

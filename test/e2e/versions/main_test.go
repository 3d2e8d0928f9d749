// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions tests on a real cluster of an older Kubernetes, by default of the oldest one,
// what depends on the version: what the scheduler emulates, what programs do where an API is
// missing, and which policy takes the place of another.
package versions

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is the cluster of all tests of this package. Its node has the certificates of the
	// scheduler's seal keys in a file, and is to read a trust bundle, too, which is not there.
	shared *cluster.Cluster
	// options are those of the cluster.
	options cluster.Options
)

const bundle = "no-such-bundle"

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(string) (cluster.Options, error) {
	var err error
	if options, err = clustertest.Options("e2e-versions", 1); err != nil {
		return options, err
	}
	if os.Getenv(clustertest.KubernetesVariable) == "" {
		options.Kubernetes = cluster.Kubernetes134
	}
	kubecri := options.Nodes[0].Kubecri
	kubecri.Args = append(kubecri.Args, "--seal-trust-bundle="+bundle)
	return options, nil
}

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 4 * time.Minute

// testContext returns a context that ends with the test, or when the test's timeout expires.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

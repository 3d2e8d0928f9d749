// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices tests on a real cluster that containers get exactly the devices that the
// scheduler chose for them: in a crowd, across crashes, against forgers, with broken plugins and
// with devices that fail.
package devices

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

var (
	// shared is the cluster of all tests of this package, with two nodes of 8 simulated GPUs. A
	// test that breaks something repairs it before it ends.
	shared *cluster.Cluster
	// files are what the cluster's programs read, for tests to change.
	files clusterDir
	// observer reads the pods of shared.
	observer *observe.Observer
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// prepare makes files in a directory and returns the options of a cluster that reads them.
func prepare(directory string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-devices", 2)
	if err != nil {
		return options, err
	}
	if files, err = newClusterDir(directory); err != nil {
		return options, err
	}
	options.Visible = append(options.Visible, string(files))
	options.Scheduler.Args = []string{
		"--devschedpath=" + files.schedulerPlugins(), "--devices-secure-port=" + apiPort, "--bind-address=0.0.0.0",
	}
	for i := range options.Nodes {
		node := fmt.Sprintf("node-%d", i+1)
		if err := files.addNode(node); err != nil {
			return options, err
		}
		options.Nodes[i].Inventory = files.inventory(node)
		options.Nodes[i].Kubecri.Args = append([]string{
			"--cridevices=" + files.devicePlugins(node),
			"--device-firewall-allow=" + exporters + "/" + exporter,
		}, usageArgs...)
		options.Nodes[i].KubeletArgs = []string{"--pod-manifest-path=" + files.staticPods(node)}
	}
	return options, nil
}

// timeout is how long a test may take on a busy machine: most take seconds.
const timeout = 5 * time.Minute

// begin returns the context of a test, which ends with it or when the test's timeout expires. It
// waits until the nodes have their devices when the first test begins.
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

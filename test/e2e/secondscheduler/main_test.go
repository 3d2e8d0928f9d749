// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secondscheduler tests on a real cluster that KubeDevice's scheduler runs from its image,
// as a Deployment next to upstream's scheduler, which schedules all pods without devices.
package secondscheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// shared is a cluster of one node with 8 simulated GPUs in pairs. Its scheduler is upstream's, and
// nothing of deploy is applied.
var shared *cluster.Cluster

// root is the directory of the checkout.
var root string

// timeout is how long the story may take. The longest wait is that for the Job's next pod.
const timeout = 8 * time.Minute

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-secondscheduler", 1)
	if err != nil {
		return options, err
	}
	if root, err = checkout.Root(); err != nil {
		return options, err
	}
	if _, err := os.Stat(layout()); err != nil {
		return options, fmt.Errorf("%w (make images makes the images)", err)
	}
	options.Scheduler, options.Manifests = cluster.Program{}, nil
	return options, nil
}

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// layout is the directory with the scheduler's image.
func layout() string { return filepath.Join(root, "_output", "images", "kubedevice-scheduler") }

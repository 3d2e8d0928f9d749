// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests deploy/monitoring on a real cluster with a real Prometheus: what scrapes
// nodes and scheduler, the alerts, and what the boards request.
package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	shared *cluster.Cluster
	// files is a directory that the cluster's programs read.
	files string
	// prometheus is the program.
	prometheus string
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// prepare builds Prometheus, and returns the options of a cluster whose metrics other machines may
// read, as deploy/monitoring wants it.
func prepare(directory string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-monitoring", 2)
	if err != nil {
		return options, err
	}
	root, err := checkout.Root()
	if err != nil {
		return options, err
	}
	prometheus = filepath.Join(root, "_output", "tools", "prometheus")
	build := exec.Command("go", "build", "-tags", "remove_all_sd,enable_kubernetes_sd", "-o", prometheus,
		"github.com/prometheus/prometheus/cmd/prometheus")
	build.Dir = filepath.Join(root, "hack", "prometheus")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	fmt.Fprintln(os.Stderr, "Building Prometheus (minutes the first time, seconds later)")
	if said, err := build.CombinedOutput(); err != nil {
		return options, fmt.Errorf("build Prometheus: %w\n%s", err, said)
	}
	files = directory
	options.Visible = append(options.Visible, files)
	options.Scheduler.Args = append(options.Scheduler.Args, "--bind-address=0.0.0.0")
	for i := range options.Nodes {
		node := &options.Nodes[i]
		node.Inventory = filepath.Join(files, fmt.Sprintf("node-%d.yaml", i+1))
		if err := setInventory(node.Inventory, ""); err != nil {
			return options, err
		}
		node.Kubecri.Args = append(node.Kubecri.Args, "--metrics-bind-address=0.0.0.0:10261",
			"--device-usage-interval=1s")
	}
	return options, nil
}

// setInventory gives a node 8 GPUs in pairs, with some more lines of YAML. The file is replaced in
// one step, as kubecri may read it at any time.
func setInventory(path, more string) error {
	content := "count: 8\nidPrefix: gpu-\nmemory: 80Gi\ntopology: [2, 4]\n" + more
	if err := os.WriteFile(path+".next", []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".next", path)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests on a real cluster that Helm installs KubeDevice into a cluster that knows
// nothing of it, upgrades it, rolls it back, and takes it away, so that nothing is left.
package chart

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

var (
	// shared is a cluster of two nodes with a kubelet and a runtime alone. Its scheduler is
	// upstream's, and nothing of deploy is applied.
	shared *cluster.Cluster
	// options are those of the cluster.
	options cluster.Options
	// kubecri is the program that the cluster's nodes would have.
	kubecri cluster.Program
	// inventory is the file that describes the nodes' simulated GPUs.
	inventory string
	// root is the directory of the checkout, dir one for the test's files.
	root, dir string
)

// timeout is how long a story may take.
const timeout = 10 * time.Minute

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

func prepare(directory string) (_ cluster.Options, err error) {
	if options, err = clustertest.Options("e2e-chart", 2); err != nil {
		return options, err
	}
	if root, err = checkout.Root(); err != nil {
		return options, err
	}
	for _, needed := range append(layouts(), helm()) {
		if _, err := os.Stat(needed); err != nil {
			return options, fmt.Errorf("%w (make helm images plugin-image NAME=widget)", err)
		}
	}
	dir = directory
	options.Visible = append(options.Visible, dir)
	options.Scheduler, options.Manifests, options.Seals = cluster.Program{}, nil, ""
	inventory, kubecri = options.Nodes[0].Inventory, *options.Nodes[0].Kubecri
	for i := range options.Nodes {
		options.Nodes[i].Kubecri, options.Nodes[i].Inventory = nil, ""
	}
	return options, nil
}

// helm is the program of Helm.
func helm() string { return filepath.Join(root, "_output", "tools", "helm") }

// layouts are the directories of the images that the nodes need.
func layouts() []string {
	images := filepath.Join(root, "_output", "images")
	return []string{
		filepath.Join(images, "kubedevice-scheduler"), filepath.Join(images, "kubedevice-kubecri"), widgetLayout(),
	}
}

// widgetLayout is the directory of the image of plugins/template.
func widgetLayout() string { return filepath.Join(root, "_output", "plugin-images", "widget-plugin") }

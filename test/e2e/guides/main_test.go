// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guides does what a guide of docs/deploy says, command by command, on a real cluster
// without KubeDevice.
package guides

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/enrolments"
)

var (
	// shared is a cluster of one node with upstream's scheduler, without kubecri and all of deploy.
	shared *cluster.Cluster
	// node is its node.
	node *enrolments.Node
	// options are those of the cluster, kubecri is what the node is to be enrolled with.
	options cluster.Options
	kubecri cluster.Program
	// scheduler is ours, which is to take the place of upstream's.
	scheduler cluster.Program
	// root is the directory of the checkout, and dir one for files.
	root, dir string
)

// timeout is how long a guide may take.
const timeout = 8 * time.Minute

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) (err error) {
	shared = c
	node, err = enrolments.NewNode(c, c.Nodes[0], options, filepath.Join(dir, "node"), kubecri)
	return err
}

// prepare describes the cluster, and keeps the kubecri that its node is to be enrolled with.
func prepare(directory string) (_ cluster.Options, err error) {
	if root, err = checkout.Root(); err != nil {
		return options, err
	}
	if options, err = clustertest.Options("e2e-guides", 1); err != nil {
		return options, err
	}
	dir = directory
	options.Visible = append(options.Visible, dir)
	scheduler, options.Scheduler = options.Scheduler, cluster.Program{}
	options.Manifests, options.Seals = nil, ""
	kubecri = enrolments.TakeKubecri(&options.Nodes[0])
	return options, nil
}

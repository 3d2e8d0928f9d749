// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guides does what a guide of docs/guides says, command by command, on a real cluster
// without KubeDevice.
package guides

import (
	"fmt"
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
	// scheduler is ours, which is to take the place of upstream's.
	scheduler cluster.Program
	// root is the directory of the checkout, and dir one for files.
	root, dir string
)

// timeout is how long a guide may take.
const timeout = 4 * time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	options, kubecri, err := prepare()
	defer os.RemoveAll(dir) //nolint:errcheck // files of no value in the directory for such
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	code := clustertest.Run(m, options, func(c *cluster.Cluster) {
		shared = c
		node, err = enrolments.NewNode(c, c.Nodes[0], options, filepath.Join(dir, "node"), kubecri)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	return code
}

// prepare describes the cluster, and returns the kubecri that its node is to be enrolled with.
func prepare() (options cluster.Options, kubecri cluster.Program, err error) {
	if root, err = checkout.Root(); err != nil {
		return options, kubecri, err
	}
	if options, err = clustertest.Options("e2e-guides", 1); err != nil {
		return options, kubecri, err
	}
	if dir, err = os.MkdirTemp("", "kubedevice-e2e-guides-"); err != nil {
		return options, kubecri, err
	}
	options.Visible = append(options.Visible, dir)
	scheduler, options.Scheduler = options.Scheduler, cluster.Program{}
	options.Manifests, options.Seals = nil, ""
	kubecri = enrolments.TakeKubecri(&options.Nodes[0])
	return options, kubecri, os.Chmod(dir, 0o755)
}

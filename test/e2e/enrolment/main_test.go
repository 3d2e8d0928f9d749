// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package enrolment tests on a real cluster that a node with a kubelet alone is enrolled, and
// leaves as it was, while its pods run on.
package enrolment

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/enrolments"
)

var (
	// shared is a cluster of one node without kubecri.
	shared *cluster.Cluster
	// options are those of the cluster.
	options cluster.Options
	// node is its node.
	node *enrolments.Node
	// kubecri is what it is to be enrolled with.
	kubecri cluster.Program
	// dir has the files that systemd would have, and those of the test.
	dir string
)

// timeout is how long a story may take; one waits for a minute by itself.
const timeout = 8 * time.Minute

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) (err error) {
	shared = c
	node, err = enrolments.NewNode(c, c.Nodes[0], options, filepath.Join(dir, "node"), kubecri,
		"--plugins-for-other-devices")
	return err
}

// prepare describes the cluster, and keeps the kubecri that its node is to be enrolled with.
func prepare(directory string) (_ cluster.Options, err error) {
	if options, err = clustertest.Options("e2e-enrolment", 1); err != nil {
		return options, err
	}
	dir = directory
	options.Visible = append(options.Visible, dir)
	kubecri = enrolments.TakeKubecri(&options.Nodes[0])
	// The plugin that registers with the kubelet.
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "plugin"), "../numa/testdata/plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return options, fmt.Errorf("build the plugin: %w\n%s", err, said)
	}
	return options, nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package enrolment tests on a real cluster that a node with a kubelet alone is enrolled, and
// leaves as it was, while its pods run on.
package enrolment

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is a cluster of one node without kubecri.
	shared *cluster.Cluster
	// options are those of the cluster.
	options cluster.Options
	// kubecri is what is to be installed on the node, and dir has the files that systemd would
	// have, and those of the test.
	kubecri cluster.Program
	dir     string
)

// patience is how long a story may take; one waits for a minute by itself.
const patience = 4 * time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	err := prepare()
	defer os.RemoveAll(dir) //nolint:errcheck // files of no value in the directory for such
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	return clustertest.Run(m, options, func(c *cluster.Cluster) { shared = c })
}

func prepare() (err error) {
	if options, err = clustertest.Options("e2e-enrolment", 1); err != nil {
		return err
	}
	if dir, err = os.MkdirTemp("", "kubedevice-e2e-enrolment-"); err != nil {
		return err
	}
	options.Visible = append(options.Visible, dir)
	node := &options.Nodes[0]
	kubecri = *node.Kubecri
	kubecri.Env = []string{cluster.InventoryVariable + "=" + node.Inventory}
	node.Kubecri, node.Inventory = nil, ""
	// The plugin that registers with the kubelet.
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "plugin"), "../numa/testdata/plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the plugin: %w\n%s", err, said)
	}
	systemctl, err := os.ReadFile("testdata/systemctl")
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(dir, 0o755), os.Mkdir(unitsDir(), 0o755),
		os.Mkdir(binDir(), 0o755), os.WriteFile(filepath.Join(binDir(), "systemctl"), systemctl, 0o755))
}

func binDir() string      { return filepath.Join(dir, "bin") }
func unitsDir() string    { return filepath.Join(dir, "units") }
func logsDir() string     { return filepath.Join(options.Dir, "logs", "systemd") }
func kubeletFile() string { return filepath.Join(dir, "kubelet-command") }
func configFile() string  { return filepath.Join(dir, "kubedevice", "kubecri.yaml") }
func brokenFile() string  { return filepath.Join(dir, "broken") }

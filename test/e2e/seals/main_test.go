// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seals tests on a real cluster how it comes to seals, from none to enforced ones with keys
// that are replaced, while pods hold devices.
package seals

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is a cluster of one node that begins without seals and without admission policies.
	shared *cluster.Cluster
	// dir has the files that its programs read.
	dir string
	// sealing is the program of the scheduler that takes over.
	sealing cluster.Program
)

const schedulerPort = 10272

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

func prepare(directory string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-seals", 1)
	if err != nil {
		return options, err
	}
	dir = directory
	options.Seals = ""
	options.Manifests = options.Manifests[:1] // the roles alone
	options.Visible = append(options.Visible, dir)
	sealing = options.Scheduler
	sealing.Args = append(sealing.Args[:len(sealing.Args):len(sealing.Args)], "--device-seal-key="+keyFile())
	node := options.Nodes[0].Kubecri
	node.Args = append(node.Args, "--kubecri-config="+configFile())
	return options, configure("")
}

// keyDir is the administrator's directory of keys, and keyFile what the scheduler reads of it.
func keyDir() string     { return filepath.Join(dir, "seal-keys") }
func keyFile() string    { return filepath.Join(dir, "private.pem") }
func configFile() string { return filepath.Join(dir, "kubecri.yaml") }

// configure writes the configuration file of kubecri.
func configure(settings string) error {
	return os.WriteFile(configFile(), []byte("apiVersion: kubecri.config.kubedevice.io/v1alpha1\n"+
		"kind: KubecriConfiguration\n"+settings), 0o644)
}

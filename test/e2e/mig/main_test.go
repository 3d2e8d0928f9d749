// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mig tests on a real cluster that pods get instances of partitioned GPUs. The node has the
// plugin nvidiagpu and a fake of NVIDIA's library: two H100, of which the second is
// partitioned.
package mig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is the cluster, of one node.
	shared *cluster.Cluster
	// library is the node's fake of NVIDIA's library.
	library nvmltest.Library
	// configuration is the plugin's configuration file, which is not there at first.
	configuration string
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// prepare returns the options of a cluster whose node has the hardware.
func prepare(dir string) (options cluster.Options, err error) {
	if options, err = clustertest.Options("e2e-mig", 1); err != nil {
		return options, err
	}
	library, err = nvmltest.BuildIn(context.Background(), dir, nvmltest.Machine{
		Ancestor: nvmltest.Matrix(2, func(_, _ int) int { return 30 }), Model: mig.H100With80GB(),
	})
	if err != nil {
		return options, err
	}
	root, err := checkout.Root()
	if err != nil {
		return options, err
	}
	plugins := filepath.Join(dir, "plugins")
	built := filepath.Join(root, "_output", "plugins", "device", "nvidiagpu.so")
	options.Nodes[0].Inventory = ""
	options.Nodes[0].Kubecri.Args = []string{"--cridevices=" + plugins}
	configuration = filepath.Join(dir, "nvidiagpu.yaml")
	options.Nodes[0].Kubecri.Env = []string{
		"LD_LIBRARY_PATH=" + dir, "KUBEDEVICE_NVIDIAGPU_CONFIG=" + configuration,
	}
	options.Visible = append(options.Visible, dir)
	return options, errors.Join(
		os.Mkdir(plugins, 0o755),
		os.Symlink(built, filepath.Join(plugins, "nvidiagpu.so")),
		library.WritePartitions(map[int][]nvmltest.Part{1: {
			library.At("1g.10gb", 0), library.At("1g.10gb", 1), library.At("1g.10gb", 2), library.At("3g.40gb", 4),
		}}),
	)
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 4 * time.Minute

// begin returns the context of a test, which ends with it or when the test's timeout expires.
func begin(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

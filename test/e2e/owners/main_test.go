// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owners tests on a real cluster that a resource moves from a device plugin at the kubelet
// to a plugin file of kubecri, and back, while pods run and arrive: NVIDIA's plugin and nvidiagpu,
// with a fake of NVIDIA's library.
package owners

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"github.com/kubedevice/kubedevice/test/vendors"
)

var (
	// node is the cluster's only node, and shared the cluster.
	node   *cluster.Node
	shared *cluster.Cluster
	// nvidia is NVIDIA's plugin at the node's kubelet, which does not run at first.
	nvidia *cluster.Component
	// built is nvidiagpu's device plugin, and file where kubecri loads it from.
	built, file string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "owners-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // files of no value in the directory for such
	options, err := clustertest.Options("e2e-owners", 1)
	if err != nil {
		return fail(err)
	}
	if _, skipped := clustertest.Skipped(); !skipped {
		if err := clustertest.Build(context.Background(), options.Programs, binaries.DevicePlugins); err != nil {
			return fail(err)
		}
	}
	library, err := nvmltest.BuildIn(context.Background(), dir, vendors.NVML())
	if err != nil {
		return fail(err)
	}
	machine, err := vendors.NewMachine(dir, library.Path)
	if err != nil {
		return fail(err)
	}
	root, err := checkout.Root()
	if err != nil {
		return fail(err)
	}
	plugins := filepath.Join(dir, "plugins")
	built = filepath.Join(root, "_output", "plugins", "device", "nvidiagpu.so")
	file = filepath.Join(plugins, "nvidiagpu.so")
	options.Nodes[0].Inventory = ""
	options.Nodes[0].Kubecri.Args = []string{"--cridevices=" + plugins}
	options.Nodes[0].Kubecri.Env = []string{"LD_LIBRARY_PATH=" + dir}
	options.Visible = append(options.Visible, dir)
	if err := os.Mkdir(plugins, 0o755); err != nil {
		return fail(err)
	}
	var furnished error
	code := clustertest.Run(m, options, func(c *cluster.Cluster) {
		shared, node = c, c.Nodes[0]
		plugin := machine.Plugin(vendors.NVIDIA)
		nvidia = node.NewComponent("nvidia", cluster.Program{
			Path: plugin.Path(c.Programs()), Args: plugin.Args, Env: plugin.Env,
			Mounts: []sandbox.Mount{{Source: machine.Sys(), Target: "/sys"}},
		})
		furnished = node.Sandbox().Do(func() error { return machine.MakeNodes("/dev") })
	})
	if furnished != nil {
		return fail(errors.Join(furnished))
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "FAIL:", err)
	return 1
}

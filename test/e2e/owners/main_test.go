// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owners tests on a real cluster that a resource moves from a device plugin at the kubelet
// to a plugin file of kubecri while pods run and arrive: NVIDIA's plugin and nvidiagpu,
// with a fake of NVIDIA's library.
package owners

import (
	"context"
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

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, furnish, use)) }

// machine is the node's simulated hardware.
var machine *vendors.Machine

// furnish returns the options of a cluster whose node has the hardware.
func furnish(dir string) (options cluster.Options, err error) {
	if options, err = clustertest.Options("e2e-owners", 1); err != nil {
		return options, err
	}
	if err := clustertest.Build(context.Background(), options.Programs, binaries.DevicePlugins); err != nil {
		return options, err
	}
	library, err := nvmltest.BuildIn(context.Background(), dir, vendors.NVML())
	if err != nil {
		return options, err
	}
	if machine, err = vendors.NewMachine(dir, library.Path); err != nil {
		return options, err
	}
	root, err := checkout.Root()
	if err != nil {
		return options, err
	}
	plugins := filepath.Join(dir, "plugins")
	built = filepath.Join(root, "_output", "plugins", "device", "nvidiagpu.so")
	file = filepath.Join(plugins, "nvidiagpu.so")
	options.Nodes[0].Inventory = ""
	options.Nodes[0].Kubecri.Args = []string{"--cridevices=" + plugins}
	options.Nodes[0].Kubecri.Env = []string{"LD_LIBRARY_PATH=" + dir}
	options.Visible = append(options.Visible, dir)
	return options, os.Mkdir(plugins, 0o755)
}

// use prepares NVIDIA's plugin and the device nodes on the cluster's node.
func use(c *cluster.Cluster) error {
	shared, node = c, c.Nodes[0]
	plugin := machine.Plugin(vendors.NVIDIA)
	nvidia = node.NewComponent("nvidia", cluster.Program{
		Path: plugin.Path(c.Programs()), Args: plugin.Args, Env: plugin.Env,
		Mounts: []sandbox.Mount{{Source: machine.Sys(), Target: "/sys"}},
	})
	return node.Sandbox().Do(func() error { return machine.MakeNodes("/dev") })
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owners tests on a real cluster that a resource moves between a device plugin at the
// kubelet, the same one at kubecri and a plugin file of kubecri while pods run and arrive: NVIDIA's
// plugin and nvidiagpu, with a fake of NVIDIA's library. Each test has a node to itself.
package owners

import (
	"context"
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

// kubecriDirectory is where plugins register with kubecri.
const kubecriDirectory = "/var/lib/kubedevice/device-plugins"

// owned is a node with those that can have its GPUs. None of them runs at first.
type owned struct {
	*cluster.Node
	kubelets *cluster.Component // NVIDIA's plugin at the kubelet
	hosted   *cluster.Component // the same at kubecri
	file     string             // where kubecri loads nvidiagpu's device plugin from
}

var (
	shared *cluster.Cluster
	// direct, stepwise, within and outward are the nodes of the four tests.
	direct, stepwise, within, outward owned
	// built is nvidiagpu's device plugin.
	built string
	// machine is the simulated hardware of each node.
	machine *vendors.Machine
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, furnish, use)) }

// furnish returns the options of a cluster whose nodes have the hardware.
func furnish(dir string) (options cluster.Options, err error) {
	if options, err = clustertest.Options("e2e-owners", 4); err != nil {
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
	built = filepath.Join(root, "_output", "plugins", "device", "nvidiagpu.so")
	for i, n := range []*owned{&direct, &stepwise, &within, &outward} {
		plugins := filepath.Join(dir, fmt.Sprintf("plugins-%d", i))
		if err := os.Mkdir(plugins, 0o755); err != nil {
			return options, err
		}
		n.file = filepath.Join(plugins, "nvidiagpu.so")
		options.Nodes[i].Inventory = ""
		options.Nodes[i].Kubecri.Args = []string{"--cridevices=" + plugins}
		options.Nodes[i].Kubecri.Env = []string{"LD_LIBRARY_PATH=" + dir}
	}
	options.Visible = append(options.Visible, dir)
	return options, nil
}

// use prepares NVIDIA's plugin and the device nodes on each node.
func use(c *cluster.Cluster) error {
	shared = c
	plugin := machine.Plugin(vendors.NVIDIA)
	program := cluster.Program{
		Path: plugin.Path(c.Programs()), Args: plugin.Args, Env: plugin.Env,
		Mounts: []sandbox.Mount{{Source: machine.Sys(), Target: "/sys"}},
	}
	atKubecri := program
	atKubecri.Mounts = append([]sandbox.Mount{{Source: kubecriDirectory, Target: vendors.KubeletDirectory}},
		program.Mounts...)
	for i, n := range []*owned{&direct, &stepwise, &within, &outward} {
		n.Node = c.Nodes[i]
		n.kubelets, n.hosted = n.NewComponent("nvidia", program), n.NewComponent("nvidia-at-kubecri", atKubecri)
		if err := n.Sandbox().Do(func() error { return machine.MakeNodes("/dev") }); err != nil {
			return err
		}
	}
	return nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failover lets GPUs fail that pods hold, on a real cluster: XIDs, and GPUs that fall off
// the bus. The nodes have the plugin nvidiagpu and a fake of NVIDIA's library each, with eight
// H100. The kernel is a witness of which container has which GPU, and of which goes on.
package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/audit"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

const (
	gpus corev1.ResourceName = "nvidia.com/gpu"
	// perNode is how many GPUs a node has.
	perNode = 8
)

var (
	// shared is the cluster, of two nodes.
	shared *cluster.Cluster
	// libraries are the nodes' fakes of NVIDIA's library, by the node's name.
	libraries = map[string]nvmltest.Library{}
	// programs are the nodes' kubecris, by the node's name.
	programs = map[string]cluster.Program{}
	// auditor reads from the kernel what runs on both nodes.
	auditor *audit.Auditor
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// prepare returns the options of a cluster whose nodes have the hardware.
func prepare(dir string) (options cluster.Options, err error) {
	if options, err = clustertest.Options("e2e-failover", 2); err != nil {
		return options, err
	}
	root, err := checkout.Root()
	if err != nil {
		return options, err
	}
	auditor = audit.New(func() (map[string]audit.Container, error) {
		return audit.Running(cluster.CgroupName(options.Dir), audit.Visible)
	})
	plugins := filepath.Join(dir, "plugins")
	options.Visible = append(options.Visible, dir)
	for i := range options.Nodes {
		name := fmt.Sprintf("node-%d", i+1)
		own := filepath.Join(dir, name)
		if err := os.Mkdir(own, 0o755); err != nil {
			return options, err
		}
		libraries[name], err = nvmltest.BuildIn(context.Background(), own, nvmltest.Machine{
			Ancestor: nvmltest.Matrix(perNode, func(_, _ int) int { return 30 }),
			NVLink:   nvmltest.Matrix(perNode, func(i, j int) bool { return i != j }),
			Model:    mig.H100With80GB(),
		})
		if err != nil {
			return options, err
		}
		options.Nodes[i].Inventory = ""
		options.Nodes[i].Kubecri.Args = []string{"--cridevices=" + plugins}
		options.Nodes[i].Kubecri.Env = []string{"LD_LIBRARY_PATH=" + own}
		programs[name] = *options.Nodes[i].Kubecri
	}
	return options, errors.Join(
		os.Mkdir(plugins, 0o755),
		os.Symlink(filepath.Join(root, "_output", "plugins", "device", "nvidiagpu.so"),
			filepath.Join(plugins, "nvidiagpu.so")),
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

// awaitGPUs waits until a node offers all its GPUs.
func awaitGPUs(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, node, fmt.Sprintf("to offer %d GPUs", perNode),
		func(now *corev1.Node) bool {
			offered := now.Status.Allocatable[gpus]
			return offered.Value() == perNode
		})
	if err != nil {
		t.Fatal(err)
	}
}

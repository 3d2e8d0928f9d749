// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims tests on a real cluster that pods that request devices by claims, and pods that
// request them by limits, get each device once.
package claims

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/dradriver"
)

// pods is how many pods come and go. In CI it is a sample.
var pods = flag.Int("pods", 30, "how many pods come and go")

// The nodes: on the first a DRA driver has devices, on the second kubecri has GPUs, and on the
// third both have the same GPUs, and the driver some devices of its own.
const (
	onlyClaims = iota
	onlyGPUs
	both
	nodes
)

// perNode is how many devices a node has of a kind, and own how many of the third node's are the
// driver's alone.
const (
	perNode = 8
	own     = 4
)

var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(dir string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-claims", nodes)
	if err != nil {
		return options, err
	}
	none := filepath.Join(dir, "no-plugins")
	options.Nodes[onlyClaims].Inventory = ""
	options.Nodes[onlyClaims].Kubecri.Args = []string{"--cridevices=" + none}
	options.Scheduler.Args = append(options.Scheduler.Args, "--device-claims=kubedevice")
	options.ExtraArgs = map[string][]string{"kube-controller-manager": {"--controllers=resourceclaim-controller"}}
	return options, os.Mkdir(none, 0o755)
}

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// driverOf returns the driver of a node, which has the same name on all nodes.
func driverOf(node int) dradriver.Driver {
	d := dradriver.Driver{Name: "claims.example.com", Kind: "claims.example.com/device"}
	count := perNode
	if node == both {
		count += own
	}
	for i := range count {
		device := dradriver.Device{Name: fmt.Sprint("dev-", i)}
		if node == both && i < perNode {
			device.Attributes = uuid(fmt.Sprint("gpu-", i))
		} else {
			device.Attributes = uuid(fmt.Sprintf("own-%d-%d", node, i))
		}
		d.Devices = append(d.Devices, device)
	}
	return d
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// The plugins that tests name.
const (
	intelGPU = "gpu_plugin"
	intelNPU = "npu_plugin"
	nvidia   = vendors.NVIDIA
	sample   = "sample-device-plugin"
)

// sampleFiles are what the example's Allocate leaves on the machine.
var sampleFiles = []string{"/tmp/Dev-1", "/tmp/Dev-2"}

// node is a node of the cluster with simulated hardware.
type node struct {
	*cluster.Node
	*vendors.Machine
	nvml nvmltest.Library
	// plugins are the plugins that run on the node, by name. One that ends is started again, as the
	// kubelet does it for a DaemonSet: Intel's end by a panic now and then when kubecri is another.
	// Not so while they are late.
	plugins map[string]*cluster.Component

	mu   sync.Mutex // held while programs are started
	late bool
}

// kubecriDirectory is where kubecri hosts plugins by default.
const kubecriDirectory = "/var/lib/kubedevice/device-plugins"

// furnish gives a node its hardware. dir is a directory for what describes it.
func furnish(n *cluster.Node, dir string) (*node, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	library, err := nvmltest.BuildIn(context.Background(), dir, vendors.NVML())
	if err != nil {
		return nil, err
	}
	machine, err := vendors.NewMachine(dir, library.Path)
	if err != nil {
		return nil, err
	}
	f := &node{Node: n, Machine: machine, nvml: library, plugins: map[string]*cluster.Component{}}
	for _, plugin := range machine.Plugins {
		f.plugins[plugin.Name] = f.component(plugin.Name, plugin, kubecriDirectory)
	}
	return f, f.makeNodes()
}

// component returns a plugin that registers in a directory of the node, or by a socket in the one
// next to it, as its DaemonSet says.
func (n *node) component(name string, plugin vendors.Plugin, directory string) *cluster.Component {
	mount := sandbox.Mount{Source: directory, Target: vendors.KubeletDirectory}
	if plugin.Registry {
		mount.Source = filepath.Join(filepath.Dir(directory), filepath.Base(vendors.KubeletRegistry))
		mount.Target = vendors.KubeletRegistry
	}
	return n.NewComponent(name, cluster.Program{
		Path:     plugin.Path(shared.Programs()),
		Args:     plugin.Args,
		Env:      plugin.Env,
		Mounts:   []sandbox.Mount{{Source: n.Sys(), Target: "/sys"}, mount},
		HideRDMA: plugin.HideRDMA,
	})
}

// move ends a plugin and has another one in its place, which registers in a directory of the node.
func (n *node) move(ctx context.Context, name, directory string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.plugins[name].Terminate(ctx); err != nil {
		return err
	}
	n.plugins[name] = n.component(name+"-moved", n.Plugin(name), directory)
	return nil
}

// setPlugin has another configuration of a plugin from when it is moved on.
func (n *node) setPlugin(plugin vendors.Plugin) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.SetPlugin(plugin)
}

// makeNodes makes the device nodes, which a reboot takes away.
func (n *node) makeNodes() error {
	return n.Sandbox().Do(func() error { return n.MakeNodes("/dev") })
}

// keepPrograms starts plugins that do not run, until ctx ends. One is not started before the
// directories are there that it mounts. It starts the kubelet, too, as systemd does: one before
// 1.37 ends when kubecri is not there yet.
func (n *node) keepPrograms(ctx context.Context) {
	for ctx.Err() == nil {
		n.startPrograms()
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (n *node) startPrograms() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Kubelet.PID() == 0 {
		n.Kubelet.Start() //nolint:errcheck // it is tried again
	}
	for _, plugin := range n.plugins {
		if !n.late && plugin.PID() == 0 {
			plugin.Start() //nolint:errcheck // it is tried again
		}
	}
}

// reboot reboots the node, which has its device nodes again.
func (n *node) reboot(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Reboot(ctx); err != nil {
		return err
	}
	return n.makeNodes()
}

// forgetDevices has the kubelet start without its checkpoint of devices.
func (n *node) forgetDevices(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Kubelet.Kill9(ctx); err != nil {
		return err
	}
	if _, err := n.Run(ctx, "/bin/rm", "-f", vendors.KubeletDirectory+"/kubelet_internal_checkpoint"); err != nil {
		return err
	}
	return n.Kubelet.Start()
}

// setLate says whether plugins that do not run stay so.
func (n *node) setLate(late bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = late
}

// offers are how many devices of each resource the node has when all are healthy.
func (n *node) offers() map[corev1.ResourceName]int64 {
	counts := map[corev1.ResourceName]int64{}
	for name := range n.plugins {
		for _, device := range n.Plugin(name).Devices {
			counts[corev1.ResourceName(device.Resource)]++
		}
	}
	return counts
}

// awaitAll waits until the node offers all devices.
func (n *node) awaitAll(ctx context.Context, t *testing.T) {
	t.Helper()
	for resource, count := range n.offers() {
		n.awaitOffer(ctx, t, resource, count)
	}
}

// awaitOffer waits until so many devices of a resource are allocatable.
func (n *node) awaitOffer(ctx context.Context, t *testing.T, resource corev1.ResourceName, count int64) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, n.Name, fmt.Sprintf("to offer %d %s", count, resource),
		func(node *corev1.Node) bool {
			offered := node.Status.Allocatable[resource]
			return offered.Value() == count
		})
	if err != nil {
		t.Fatal(err)
	}
}

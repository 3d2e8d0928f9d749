// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// The resources of the nodes. GPUs and NICs are of plugins that register with kubecri, FPGAs of one
// that registers with the kubelet.
const (
	gpu  corev1.ResourceName = "gpus.example/gpu"
	nic  corev1.ResourceName = "nics.example/nic"
	fpga corev1.ResourceName = "fpgas.example/fpga"
)

// device is a device of a node as its plugin reports it.
type device struct {
	resource corev1.ResourceName
	id       string
	numa     []int // none: the plugin reports no topology
	healthy  bool
}

func (d *device) isHealthy() bool { return d.healthy }

// place is what devices that are together have in common.
func (d *device) place() string { return fmt.Sprint(d.numa) }

// name is the device's in the node's annotation.
func (d *device) name() types.ResourceName {
	resource := types.ResourceName(d.resource)
	name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: resource, ID: d.id, NUMA: d.numa})
	if err != nil {
		panic(err) // all names are of this file
	}
	return name
}

// plugin is the device plugin for one resource of a node, a process of its own.
type plugin struct {
	*cluster.Component
	devices, journal string // its files
}

// node is a node of the cluster with two plugins that kubecri hosts, and one that the kubelet does.
// What it knows of devices and pods is what tests have done.
type node struct {
	*cluster.Node
	plugins map[corev1.ResourceName]*plugin
	devices []*device
	pods    map[*corev1.Pod][]*device // what pods hold

	replaced int // devices
}

// hardware are how many GPUs and NICs a node has, by the NUMA nodes that their plugins report.
var hardware = []struct {
	numa       []int
	gpus, nics int
}{{[]int{0}, 3, 2}, {[]int{1}, 2, 3}, {[]int{2}, 2, 0}, {[]int{3}, 0, 2}, {[]int{0, 1}, 1, 1}, {nil, 1, 1}}

// newNode returns a node whose plugins have not been started. dir is a directory that all nodes can
// write to, with the plugins' program.
func newNode(n *cluster.Node, dir string) *node {
	made := &node{Node: n, plugins: map[corev1.ResourceName]*plugin{}}
	add := func(resource corev1.ResourceName, numa []int, count int) {
		for range count {
			made.devices = append(made.devices,
				&device{resource, fmt.Sprintf("%s-%d", path.Base(string(resource)), len(made.devices)), numa, true})
		}
	}
	for _, at := range hardware {
		add(gpu, at.numa, at.gpus)
		add(nic, at.numa, at.nics)
	}
	add(fpga, []int{0}, 2)
	for _, resource := range []corev1.ResourceName{gpu, nic, fpga} {
		name := path.Base(string(resource))
		files := filepath.Join(dir, n.Name+"-"+name)
		p := &plugin{devices: files + ".json", journal: files + ".journal"}
		program := cluster.Program{
			Path: filepath.Join(dir, "plugin"),
			Args: []string{"--resource=" + string(resource), "--devices=" + p.devices, "--journal=" + p.journal},
		}
		if resource != fpga {
			program.Mounts = []sandbox.Mount{{Source: "/var/lib/kubedevice/device-plugins",
				Target: "/var/lib/kubelet/device-plugins"}}
		}
		p.Component = n.NewComponent(name, program)
		made.plugins[resource] = p
	}
	return made
}

// startPlugins starts those that do not run, when there is who serves them, and waits until the
// node has their devices.
func (n *node) startPlugins(ctx context.Context, t *testing.T) {
	t.Helper()
	for resource, p := range n.plugins {
		if p.PID() != 0 {
			continue
		}
		for _, host := range []string{"kubedevice", "kubelet"} {
			socket := filepath.Join(n.Var(), "lib", host, "device-plugins", "kubelet.sock")
			clustertest.AwaitSuccess(ctx, t, n.Name+" to have "+socket, func() error {
				_, err := os.Stat(socket)
				return err
			})
		}
		n.write(t, resource)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	n.awaitDevices(ctx, t)
}

// write writes the file that a plugin reads.
func (n *node) write(t *testing.T, resource corev1.ResourceName) {
	t.Helper()
	var list []*pluginapi.Device
	for _, d := range n.devices {
		if d.resource != resource {
			continue
		}
		reported := &pluginapi.Device{ID: d.id, Health: pluginapi.Unhealthy}
		if d.healthy {
			reported.Health = pluginapi.Healthy
		}
		for _, numa := range d.numa {
			if reported.Topology == nil {
				reported.Topology = &pluginapi.TopologyInfo{}
			}
			reported.Topology.Nodes = append(reported.Topology.Nodes, &pluginapi.NUMANode{ID: int64(numa)})
		}
		list = append(list, reported)
	}
	content, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	// In one step: the plugin may be reading it.
	file := n.plugins[resource].devices
	if err := errors.Join(os.WriteFile(file+".next", content, 0o644), os.Rename(file+".next", file)); err != nil {
		t.Fatal(err)
	}
}

// setHealth makes devices unhealthy, or replaces unhealthy ones that no pod holds by healthy ones
// of another ID: a device that recovers several times is held back for minutes.
func (n *node) setHealth(t *testing.T, healthy func(*device) bool) {
	t.Helper()
	for _, d := range n.devices {
		now := healthy(d)
		if now && !d.healthy {
			if n.held(d) {
				continue
			}
			n.replaced++
			d.id = fmt.Sprintf("%s-new-%d", path.Base(string(d.resource)), n.replaced)
		}
		d.healthy = now
	}
	for resource, p := range n.plugins {
		n.write(t, resource)
		if err := p.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitDevices waits until the node publishes its devices as they are. Of those that are unhealthy,
// it may count as many as pods hold.
func (n *node) awaitDevices(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, n.Name, "to publish its devices as they are", func(node *corev1.Node) bool {
		reported, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
		if err != nil {
			return false
		}
		for _, d := range n.devices {
			quantity, there := reported.Allocatable[d.name()]
			if d.resource != fpga && (!there || quantity == 1 != d.healthy) {
				return false
			}
		}
		for resource := range n.plugins {
			quantity := node.Status.Allocatable[resource]
			count, healthy := quantity.Value(), n.count(resource, (*device).isHealthy)
			if count < healthy || count > max(healthy, n.count(resource, n.held)) {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// allocated returns what the plugin has allocated so far: for each container its IDs, with
// commas between them.
func (p *plugin) allocated(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(p.journal)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(content))
}

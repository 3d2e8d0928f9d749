// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe finds out what became of a pod's devices on a cluster with simulated GPUs: what
// the scheduler chose, as the pod's annotation says, and what each container finds and may open,
// requested from inside.
package observe

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/kube"
)

const (
	// Resource is the plain count of GPUs, on nodes and in pods.
	Resource corev1.ResourceName = "nvidia.com/gpu"
	// DeviceDirectory is where the simulated GPUs' plugin keeps its device nodes, on the node and
	// so in the containers.
	DeviceDirectory = "/var/lib/kubedevice/simgpu"
)

// Device is a simulated GPU.
type Device struct {
	// ID is its name, which is unique on its node.
	ID string
	// Major and Minor are the decimal number of its device node.
	Major, Minor string
}

// Observer reads the pods of one cluster. It may be used from several goroutines.
type Observer struct {
	client  *kube.Client
	devices map[string][]Device
}

// New waits until every node of the cluster has published its GPUs, and notes what they are.
func New(ctx context.Context, c *cluster.Cluster) (*Observer, error) {
	o := &Observer{client: c.Client, devices: map[string][]Device{}}
	for _, node := range c.Nodes {
		_, err := c.Client.AwaitNode(ctx, node.Name, "to publish its GPUs", func(n *corev1.Node) bool {
			gpus := n.Status.Allocatable[Resource]
			return !gpus.IsZero()
		})
		if err != nil {
			return nil, err
		}
		if o.devices[node.Name], err = devicesOf(ctx, node); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Devices returns the GPUs of a node.
func (o *Observer) Devices(node string) []Device { return o.devices[node] }

// devicesOf reads the directory of device nodes.
func devicesOf(ctx context.Context, node *cluster.Node) ([]Device, error) {
	const list = "cd " + DeviceDirectory +
		` && for id in *; do echo $id $((0x$(stat -c %t $id))) $((0x$(stat -c %T $id))); done`
	printed, err := node.Run(ctx, "/bin/sh", "-c", list)
	if err != nil {
		return nil, fmt.Errorf("list the device nodes of %s: %w", node.Name, err)
	}
	var devices []Device
	for line := range strings.Lines(printed) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("list the device nodes of %s: not ID, major and minor: %q", node.Name, line)
		}
		devices = append(devices, Device{ID: fields[0], Major: fields[1], Minor: fields[2]})
	}
	return devices, nil
}

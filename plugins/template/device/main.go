// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The device plugin of the widget plugin: it runs on each node, inside kubecri.
//
//	go build -buildmode=plugin -trimpath -o widget-device.so ./device
package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"example.com/widget/widget"
)

// CreateDevicePlugin is the entry point. kubecri calls it once.
func CreateDevicePlugin() (device.Device, error) {
	return &node{dir: cmp.Or(os.Getenv("WIDGET_DIR"), "/dev/widgets")}, nil
}

// node is the widgets of this node. It keeps no state, so it needs no lock.
type node struct{ dir string }

var _ device.Device = (*node)(nil)

func (n *node) GetName() string { return "widget" }

// New is for what can never work, such as a licence that is missing: an error leaves the plugin
// out.
func (n *node) New() error { return nil }

// Start is for what may work later, such as a driver that is not loaded yet: after an error it is
// called again.
func (n *node) Start() error { return nil }

// UpdateNodeInfo is called all the time. It says what is there now: each widget, and how many there
// are.
func (n *node) UpdateNodeInfo(nodeInfo *types.NodeInfo) error {
	found, err := widget.Find(os.DirFS(n.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a node without the driver has no widgets
	}
	if err != nil {
		return err
	}
	for _, w := range found {
		nodeInfo.Capacity[w.Resource()] = 1
		nodeInfo.Allocatable[w.Resource()] = 1
	}
	count := int64(len(found))
	nodeInfo.Capacity[widget.Count], nodeInfo.Allocatable[widget.Count] = count, count
	nodeInfo.KubeCap[widget.Count], nodeInfo.KubeAlloc[widget.Count] = count, count
	return nil
}

// Allocate says what a container needs to use the widgets that the scheduler chose for it. The same
// question must have the same answer: it is called again when the container starts again.
func (n *node) Allocate(
	_ *types.PodInfo,
	container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	var paths []string
	for _, resource := range container.AllocateFrom {
		if w, ok := widget.Parse(resource); ok { // what is not ours belongs to another plugin
			paths = append(paths, filepath.Join(n.dir, w.Board, w.ID))
		}
	}
	if paths == nil {
		return nil, nil, nil, nil
	}
	slices.Sort(paths)
	return nil, paths, map[string]string{"WIDGETS": strings.Join(paths, ",")}, nil
}

// main lets "go build ./..." link the package; a plugin is never run as a program.
func main() {}

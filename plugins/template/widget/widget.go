// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package widget is what both plugins share: the names of widgets, which ones a node
// has, and what a pod that requests widgets gets.
//
// A widget is a device that does not exist. Its driver makes a device node
// /dev/widgets/<board>/<widget> for each, and widgets of one board can talk to each other fast.
package widget

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Count is the plain resource: the name that pods have in their limits, and that nodes count.
const Count types.ResourceName = "example.com/widget"

// The levels of a widget's name in a node's inventory, and its resource:
//
//	resource/group/board/<board>/widget/<widget>/cards = 1
const (
	boards = "board"
	Level  = "widget"
	Cards  = "cards"
)

// Widget is one widget of a node.
type Widget struct{ Board, ID string }

// Resource returns the widget's name in the inventory.
func (w Widget) Resource() types.ResourceName {
	return types.ResourceName(
		strings.Join([]string{types.DeviceGroupPrefix, boards, w.Board, Level, w.ID, Cards}, "/"),
	)
}

// Parse returns the widget that a name in an inventory stands for. ok is false for the resources of
// other devices.
func Parse(name types.ResourceName) (w Widget, ok bool) {
	path, err := resource.ParsePath(name)
	board, onBoard := path.Instance(boards)
	if err != nil || !onBoard || path.Depth() != 2 || path.DeviceLevel() != Level || path.Resource() != Cards {
		return Widget{}, false
	}
	return Widget{Board: board, ID: path.DeviceID()}, true
}

// Find returns the widgets whose device nodes are in a directory like /dev/widgets, in the order of
// their names.
func Find(dir fs.FS) ([]Widget, error) {
	var found []Widget
	err := fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		board, id, ok := strings.Cut(path, "/")
		if ok && entry.Type()&fs.ModeDevice != 0 {
			found = append(found, Widget{Board: board, ID: id})
		}
		if ok && entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find widgets: %w", err)
	}
	return found, nil
}

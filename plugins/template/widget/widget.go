// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package widget is what both halves of the plugin know: what a widget is called, which ones a node has, and what a pod
// that asks for widgets means.
//
// A widget is a device that does not exist. Its driver makes a device node /dev/widgets/<board>/<widget> for each, and
// widgets of one board can talk to each other fast.
package widget

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Count is the plain resource: the name that pods have in their limits, and that nodes count.
const Count types.ResourceName = "example.com/widget"

// The levels of a widget's name in a node's inventory, and its resource:
//
//	resource/group/board/<board>/widget/<widget>/cards = 1
const (
	boards  = "board"
	widgets = "widget"
	cards   = "cards"
)

// Widget is one widget of a node.
type Widget struct{ Board, ID string }

// Resource returns the widget's name in the inventory.
func (w Widget) Resource() types.ResourceName {
	return types.ResourceName(strings.Join([]string{types.DeviceGroupPrefix, boards, w.Board, widgets, w.ID, cards}, "/"))
}

// Parse returns the widget that an inventory's name names. ok is false for the resources of other devices.
func Parse(name types.ResourceName) (w Widget, ok bool) {
	path := strings.Split(strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/"), "/")
	if len(path) != 5 || path[0] != boards || path[2] != widgets || path[4] != cards {
		return Widget{}, false
	}
	return Widget{Board: path[1], ID: path[3]}, true
}

// Find returns the widgets whose device nodes are in a folder like /dev/widgets, in the order of their names.
func Find(folder fs.FS) ([]Widget, error) {
	var found []Widget
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
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
		return nil, fmt.Errorf("look for widgets: %w", err)
	}
	return found, nil
}

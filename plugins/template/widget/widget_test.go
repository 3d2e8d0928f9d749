// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestDeviceNodesAreWidgets(t *testing.T) {
	node := &fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}
	directory := fstest.MapFS{
		"b1/w0": node, "b0/w1": node, "b0/w0": node,
		"b0/README":   {Data: []byte("no device")},
		"b0/old/w9":   node,
		"lost-device": node,
	}
	found, err := Find(directory)
	want := []Widget{{"b0", "w0"}, {"b0", "w1"}, {"b1", "w0"}}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("Find = %v, %v, want %v", found, err, want)
	}
	for _, w := range want {
		if again, ok := Parse(w.Resource()); !ok || again != w {
			t.Errorf("%s is parsed as %v, %v", w.Resource(), again, ok)
		}
	}
	if _, err := Find(fstest.MapFS{}); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestADirectoryThatIsNotThereIsReported(t *testing.T) {
	if _, err := Find(missing{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Find = %v", err)
	}
}

type missing struct{}

func (missing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func TestOtherDevicesAreNoWidgets(t *testing.T) {
	for _, name := range []types.ResourceName{
		"resource/group/gpu/a/cards", "resource/group/board/b0/gpu/a/cards", "resource/group/board/b0/widget/w0/memory",
		"resource/group/board/b0/widget/w0", "example.com/widget", "",
	} {
		if w, ok := Parse(name); ok {
			t.Errorf("%q is parsed as %v", name, w)
		}
	}
}

func TestRequestsOfAContainerAreRead(t *testing.T) {
	tests := map[string]struct {
		count    int64
		requests types.ResourceList
		want     types.ResourceList
	}{
		"a count is that many widgets, on any boards": {
			count: 2,
			want: types.ResourceList{
				"resource/group/board/0/widget/counted-0/cards": 1,
				"resource/group/board/1/widget/counted-1/cards": 1,
			},
		},
		"widgets of one board, written by hand": {
			requests: types.ResourceList{"board/A/widget/0/cards": 1, "resource/group/board/A/widget/1/cards": 1},
			want: types.ResourceList{
				"resource/group/board/A/widget/0/cards": 1,
				"resource/group/board/A/widget/1/cards": 1,
			},
		},
		"a count beyond what was written adds to it": {
			count:    2,
			requests: types.ResourceList{"board/A/widget/0/cards": 1},
			want: types.ResourceList{
				"resource/group/board/A/widget/0/cards":         1,
				"resource/group/board/0/widget/counted-1/cards": 1,
			},
		},
		"none of a widget is no widget": {
			requests: types.ResourceList{"board/A/widget/0/cards": 0},
			want:     types.ResourceList{},
		},
		"other devices are left to other plugins": {
			requests: types.ResourceList{"gpu/a/cards": 1, "board/A/gpu/a/cards": 1, "gpu/gpu-generate-topology": 1},
			want:     types.ResourceList{},
		},
	}
	node := types.NewNodeInfo()
	node.Allocatable[Widget{Board: "b0", ID: "w0"}.Resource()] = 1
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			theirs := types.ResourceName("resource/group/nic/0/ports")
			container := &types.ContainerInfo{
				KubeRequests: types.ResourceList{Count: test.count},
				Requests:     test.requests,
				DevRequests:  types.ResourceList{theirs: 1},
			}
			Request(node, container)
			test.want[theirs] = 1
			if !maps.Equal(container.DevRequests, test.want) {
				t.Errorf("got  %v\nwant %v", container.DevRequests, test.want)
			}
		})
	}
}

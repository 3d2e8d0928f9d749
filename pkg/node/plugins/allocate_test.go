// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// richFake is a fake that implements device.Allocator.
type richFake struct {
	*fake
	answer func() (*device.Allocation, error)
}

var _ device.Allocator = richFake{}

func (f richFake) AllocateContainer(*types.PodInfo, *types.ContainerInfo) (*device.Allocation, error) {
	return f.answer()
}

func TestThePublishedAllocateIsTheShortFormOfAnAllocation(t *testing.T) {
	m := run(t, quick, nil, &fake{name: "a", update: offers("", card0),
		allocate: func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			return []device.Mount{{HostPath: "/h", ContainerPath: "/c", Readonly: true}}, []string{"/dev/x"},
				map[string]string{"A": "1"}, nil
		}})
	until(t, m, "complete", complete)
	got, err := m.Allocate(context.Background(), claim(card0))
	if err != nil {
		t.Fatal(err)
	}
	want := []inject.Addition{{Plugin: "a", Allocation: device.Allocation{
		Mounts:  []device.HostMount{{HostPath: "/h", ContainerPath: "/c", Readonly: true}},
		Devices: []device.HostDevice{{HostPath: "/dev/x"}},
		Envs:    map[string]string{"A": "1"},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnAllocatorSaysItAll(t *testing.T) {
	allocation := &device.Allocation{
		Devices:     []device.HostDevice{{HostPath: "/dev/x", ContainerPath: "/dev/y", Permissions: "r"}},
		Mounts:      []device.HostMount{{HostPath: "/h", ContainerPath: "/c", Propagation: device.HostToContainer}},
		Envs:        map[string]string{"A": "1"},
		Annotations: map[string]string{"k": "v"},
		CDIDevices:  []string{"v.com/gpu=0"},
		Links:       []string{"/l"},
	}
	for name, test := range map[string]struct {
		answer func() (*device.Allocation, error)
		want   device.Allocation
		says   string
	}{
		"all parts": {answer: func() (*device.Allocation, error) { return allocation, nil }, want: *allocation},
		"nothing":   {answer: func() (*device.Allocation, error) { return nil, nil }},
		"an error": {
			answer: func() (*device.Allocation, error) {
				return nil, errors.New("no driver")
			}, says: `device plugin "a": Allocate: no driver`,
		},
		"a panic": {
			answer: func() (*device.Allocation, error) {
				panic("boom")
			}, says: `device plugin "a": Allocate: panic: boom`,
		},
	} {
		m := run(t, quick, nil, richFake{&fake{name: "a", update: offers("", card0)}, test.answer})
		until(t, m, "complete", complete)
		got, err := m.Allocate(context.Background(), claim(card0))
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %v, want %q", name, err, test.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff([]inject.Addition{{Plugin: "a", Allocation: test.want}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAllocationsAreCopied(t *testing.T) {
	kept := &device.Allocation{Devices: []device.HostDevice{{HostPath: "/dev/x"}}, Envs: map[string]string{"A": "1"}}
	m := run(t, quick, nil, richFake{&fake{name: "a", update: offers("", card0)},
		func() (*device.Allocation, error) { return kept, nil }})
	until(t, m, "complete", complete)
	got, err := m.Allocate(context.Background(), claim(card0))
	if err != nil {
		t.Fatal(err)
	}
	kept.Devices[0].HostPath, kept.Envs["A"] = "/dev/other", "2"
	if got[0].Devices[0].HostPath != "/dev/x" || got[0].Envs["A"] != "1" {
		t.Errorf("the plugin changed its answer afterwards: %v", got)
	}
}

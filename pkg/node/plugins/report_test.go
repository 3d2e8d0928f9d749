// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// newQueried returns a plugin of the fake that a test queries by itself.
func newQueried(t testing.TB, f *fake) *plugin {
	t.Helper()
	p, err := newPlugin(context.Background(), pluginload.Loaded[device.Device]{Name: f.name, Plugin: f}, quick,
		nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnUnchangedReportIsNeitherCopiedNorCheckedAgain(t *testing.T) {
	good, bad := offers(count, card0), func(info *types.NodeInfo) error { info.Capacity[card0] = -1; return nil }
	f := &fake{name: "a"}
	p := newQueried(t, f)
	query := func(update func(*types.NodeInfo) error) (*types.NodeInfo, error) {
		f.set(update)
		return p.query(t.Context(), "node-1")
	}
	first, err := query(good)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := query(good); again != first || err != nil {
		t.Errorf("an unchanged report is copied (%v) or refused (%v)", again != first, err)
	}
	if other, err := query(offers(count, card0, card1)); err != nil || equalInfo(other, first) {
		t.Errorf("a changed report is taken for the last one, or refused: %v", err)
	}
	_, refused := query(bad)
	if !errors.Is(refused, deviceinfo.ErrMalformed) {
		t.Fatalf("a report that cannot be published: %v", refused)
	}
	if _, err := query(bad); err != refused {
		t.Errorf("an unchanged report that was refused: %v, want the same error", err)
	}
	if _, err := query(good); err != nil {
		t.Errorf("a good report after a refused one: %v", err)
	}
}

func TestEveryPartOfAReportIsCompared(t *testing.T) {
	lists := func(info *types.NodeInfo) map[string]types.ResourceList {
		return map[string]types.ResourceList{
			"Capacity": info.Capacity, "Allocatable": info.Allocatable, "Used": info.Used, "KubeCap": info.KubeCap,
			"KubeAlloc": info.KubeAlloc,
		}
	}
	for name := range lists(types.NewNodeInfo()) {
		a, b := types.NewNodeInfo(), types.NewNodeInfo()
		lists(a)[name][card0] = 1
		if equalInfo(a, b) || equalInfo(b, a) {
			t.Errorf("%s: a resource more makes no difference", name)
		}
		if lists(b)[name][card0] = 2; equalInfo(a, b) {
			t.Errorf("%s: a quantity makes no difference", name)
		}
	}
	a, b := types.NewNodeInfo(), types.NewNodeInfo()
	if a.Scorer[card0] = 1; equalInfo(a, b) {
		t.Error("Scorer makes no difference")
	}
}

func TestAPluginMayKeepAndChangeItsReport(t *testing.T) {
	var kept *types.NodeInfo
	f := &fake{name: "a"}
	p := newQueried(t, f)
	f.set(func(info *types.NodeInfo) error { kept = info; return offers(count, card0)(info) })
	first, err := p.query(t.Context(), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(first.Capacity)
	clear(kept.Capacity)
	if !maps.Equal(first.Capacity, want) {
		t.Error("the plugin changed its report afterwards")
	}
}

// BenchmarkUnchangedReport is what a plugin whose devices stay costs each second.
func BenchmarkUnchangedReport(b *testing.B) {
	for _, gpus := range []int{8, 64} {
		b.Run(fmt.Sprintf("%d GPUs", gpus), func(b *testing.B) {
			p := newQueried(b, &fake{name: "a", update: func(info *types.NodeInfo) error {
				for i := range gpus {
					device := fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/GPU-%08x-aaaa-bbbb-cccc-%012x",
						i/4, i/2, i, i)
					for resource, quantity := range map[string]int64{"cards": 1, "memory": 80 << 30, "enumType": 3} {
						info.Capacity[types.ResourceName(device+"/"+resource)] = quantity
						info.Allocatable[types.ResourceName(device+"/"+resource)] = quantity
					}
				}
				info.KubeCap[count], info.KubeAlloc[count] = int64(gpus), int64(gpus)
				return nil
			}})
			b.ReportAllocs()
			for b.Loop() {
				info, err := p.query(b.Context(), "node-1")
				if err != nil {
					b.Fatal(err)
				}
				p.record(info, nil, err)
			}
		})
	}
}

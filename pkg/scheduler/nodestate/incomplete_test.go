// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// specialist is a plugin that has to do with devices of one kind only.
type specialist struct {
	*gpus
	kinds devicescheduler.Kinds
}

func (s specialist) Kinds() devicescheduler.Kinds { return s.kinds }

// One plugin of two cannot take a node: the devices of the other are scheduled, and the first is
// notified again after a while.
func TestANodeThatOnePluginCannotTakeIsUsedForTheOthersDevices(t *testing.T) {
	f := newFixture(t)
	other := &gpus{}
	other.broken.Store(true)
	f.set = allocation.New(klog.Background(), nil,
		allocation.Named{
			File: "gpus.so", Plugin: specialist{f.plugin,
				devicescheduler.Kinds{Plain: []sdk.ResourceName{"nvidia.com/gpu"}, Levels: []string{"gpu"}}},
		},
		allocation.Named{File: "other.so", Plugin: specialist{other, devicescheduler.Kinds{Levels: []string{"fpga"}}}})
	f.cache = New(f.set, corelisters.NewNodeLister(f.indexer), f.clock)

	info := nodeInfo(f.node("n", "u", "A", "B"))
	f.want("free while the other plugin is broken", f.free(info), "A B")
	before := other.added.Load()
	f.want("free at once", f.free(info), "A B")
	if other.added.Load() != before {
		t.Error("the broken plugin gets the node all the time")
	}
	other.broken.Store(false)
	f.clock.Step(pluginhost.AddNodeInterval)
	f.want("free after a while", f.free(info), "A B")
	if other.added.Load() != before+1 {
		t.Errorf("the plugin was notified %d times after a while, want once", other.added.Load()-before)
	}
	f.clock.Step(pluginhost.AddNodeInterval)
	f.want("free later", f.free(info), "A B")
	if other.added.Load() != before+1 {
		t.Error("the plugin gets the node again although it has taken the node")
	}
}

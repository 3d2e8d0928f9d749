// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// grantedAndActive are what a Waiting follows.
type grantedAndActive struct {
	list   []grants.Allocation
	active map[string]bool
}

func (g *grantedAndActive) Follow() ([]grants.Allocation, bool, <-chan struct{}) {
	return g.list, true, nil
}

func (g *grantedAndActive) Active(uid string) bool { return g.active[uid] }

func TestAPodWaitsUntilItIsGrantedItsDevicesOrEnds(t *testing.T) {
	for name, c := range map[string]struct {
		device types.ResourceName
		waits  bool
	}{
		"the device is not here":  {"resource/group/gpu/9/cards", true},
		"the device is unhealthy": {"resource/group/gpu/2/cards", true},
		"it gets the device":      {card0, false},
		"it lacks a device":       {widget0, false}, // its allocation is wrong, which is no state of a device
	} {
		t.Run(name, func(t *testing.T) {
			known := &grantedAndActive{active: map[string]bool{"u": true}}
			f := newFixture(t, true)
			f.Waiting = NewWaiting(known, known)
			f.pods["u"] = requesting
			_, _, changed := f.Waiting.Follow()
			_, err := f.create(t, "u", "main", "api",
				allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {c.device}}))
			list, _, _ := f.Waiting.Follow()
			if waits := len(list) == 1 && list[0].Waits && list[0].PodUID == "u"; waits != c.waits {
				t.Fatalf("%v: that it waits is %t, want %t: %+v", err, waits, c.waits, list)
			}
			if !c.waits {
				return
			}
			select {
			case <-changed:
			default:
				t.Error("no change is announced")
			}
			if got := list[0].PodInfo.RunningContainers["main"].AllocateFrom; len(got) != 1 {
				t.Errorf("it waits for %v", got)
			}
			known.list = []grants.Allocation{{PodUID: "u"}}
			if list, _, _ := f.Waiting.Follow(); len(list) != 1 || list[0].Waits {
				t.Errorf("when it was granted them: %+v", list)
			}
			known.list = nil
			if list, _, _ := f.Waiting.Follow(); len(list) != 0 {
				t.Errorf("when it is granted them no more: %+v", list)
			}
		})
	}
	t.Run("it ends", func(t *testing.T) {
		known := &grantedAndActive{active: map[string]bool{"u": true}}
		w := NewWaiting(known, known)
		w.waits["u"] = grants.Allocation{PodUID: "u"}
		known.active["u"] = false
		if list, _, _ := w.Follow(); len(list) != 0 {
			t.Errorf("it waits still: %+v", list)
		}
	})
}

// The first container of the pod needs no device. When the second one is created, the plugin of its
// device is gone.
func TestAContainerOfAGrantedPodWaitsWhenThePluginOfItsDeviceIsGone(t *testing.T) {
	f, v := newVendorFixture(t, true)
	known := &grantedAndActive{active: map[string]bool{"u": true}}
	f.Waiting = NewWaiting(known, known)
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	if _, err := f.create(t, "u", "gate", "api", annotations); err != nil {
		t.Fatal(err)
	}
	known.list = f.Grants.(*grants.Checkpoint).List()
	waiting := func() []string {
		list, _, _ := f.Waiting.Follow()
		if len(list) != 1 || list[0].Waits {
			t.Fatalf("allocations are %+v", list)
		}
		return list[0].Waiting
	}

	leave := func() {
		v.set(false, nil)
		for {
			inventory, changed := f.Devices.Inventory()
			if inventory.Missing(hostedCard) != nil {
				return
			}
			<-changed
		}
	}
	leave()
	if got := waiting(); got != nil {
		t.Errorf("before it is created, %q wait", got)
	}
	_, _, changed := f.Waiting.Follow()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it does not wait for the plugin
	refuse := func() {
		_, err := f.CreateContainer(ctx, createRequest(t, "u", "api", annotations,
			&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}}))
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("without the plugin: %v", err)
		}
	}
	refuse()
	refuse()
	if got := waiting(); !slices.Equal(got, []string{"main"}) {
		t.Errorf("%q wait", got)
	}
	select {
	case <-changed:
	default:
		t.Error("no change is announced")
	}
	v.set(true, nil)
	if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
		t.Fatal(err)
	}
	if got := waiting(); len(got) > 0 {
		t.Errorf("when the plugin is back, %q wait", got)
	}
	leave()
	refuse()
	known.active["u"] = false
	if got := waiting(); len(got) > 0 {
		t.Errorf("when the pod has ended, %q wait", got)
	}
}

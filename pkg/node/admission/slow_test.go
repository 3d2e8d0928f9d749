// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// hangingCards answer when they are released.
type hangingCards struct {
	cards
	inside, release chan struct{}
}

func (h *hangingCards) Allocate(
	*types.PodInfo,
	*types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	h.inside <- struct{}{}
	<-h.release
	return nil, []string{"/dev/gpu0"}, nil, nil
}

// sharedWidget is a widget that any number of pods may hold.
type sharedWidget struct{ widgets }

func (s *sharedWidget) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Capacity[widget0], info.Allocatable[widget0], info.Scorer[widget0] = 1, 1, 2
	info.KubeCap[widget], info.KubeAlloc[widget] = 100, 100
	return nil
}

func TestAHangingPluginDelaysOnlyItsOwnPods(t *testing.T) {
	const others = 40
	hanging := &hangingCards{inside: make(chan struct{}, 2), release: make(chan struct{})}
	f := fixtureWith(t, hanging, &sharedWidget{})
	f.Events, f.Metrics = discards{}, discards{}
	request := func(uid string, from types.ResourceName) []byte {
		annotations := allocation(t, "pod-"+uid, "node-1", map[string][]types.ResourceName{"main": {from}})
		f.live[uid] = true
		return createRequest(
			t,
			uid,
			"api",
			annotations,
			&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		)
	}
	wants := podThatRequests(widget)
	for uid, pod := range map[string]pods.Pod{"hanging": requesting, "impatient": requesting} {
		f.pods[uid] = pod
	}
	own, impatient := request("hanging", card0), request("impatient", card1)
	var requests [][]byte
	for i := range others {
		uid := fmt.Sprintf("other-%d", i)
		f.pods[uid] = wants
		if i%2 == 0 {
			f.pods[uid] = plain
			requests = append(requests, createRequest(t, uid, "api", nil, &runtimeapi.ContainerConfig{}))
			continue
		}
		requests = append(requests, request(uid, widget0))
	}

	var delayed sync.WaitGroup
	delayed.Go(func() {
		if _, err := f.CreateContainer(context.Background(), own); err != nil {
			t.Errorf("the hanging plugin's own pod, when it is released: %v", err)
		}
	})
	<-hanging.inside
	// If one of these waited for the plugin, the test would hang: it is released only after them.
	var passing sync.WaitGroup
	for _, raw := range requests {
		passing.Go(func() {
			if _, err := f.CreateContainer(context.Background(), raw); err != nil {
				t.Error(err)
			}
		})
	}
	passing.Wait()
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.CreateContainer(short, impatient); status.Code(err) != codes.Unavailable {
		t.Errorf("a second pod of the hanging plugin, whose caller gives up: %v, want Unavailable", err)
	}
	close(hanging.release)
	delayed.Wait()
}

// lateCards start when they are released.
type lateCards struct {
	cards
	release chan struct{}
}

func (l *lateCards) Start() error {
	<-l.release
	return nil
}

// waits notes whether somebody waits for all plugins, and lets nobody wait.
type waits struct {
	Devices
	waited bool
}

func (w *waits) Synced() <-chan struct{} {
	w.waited = true
	now := make(chan struct{})
	close(now)
	return now
}

func TestAPluginThatIsStillStartingDelaysOnlyPodsThatMightNeedIt(t *testing.T) {
	for name, test := range map[string]struct {
		pod    pods.Pod
		given  []types.ResourceName
		waited bool
	}{
		"a pod that requests nothing": {pod: plain},
		"a pod with a device of another plugin": {
			pod: podThatRequests(widget), given: []types.ResourceName{widget0},
		},
		"a pod with a device of the plugin": {
			pod: requesting, given: []types.ResourceName{card0}, waited: true,
		},
		"a pod with a resource that nobody has, which it may yet offer": {pod: other, waited: true},
	} {
		late := &lateCards{release: make(chan struct{})}
		f := newFixtureOf(t, func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
			return []pluginload.Loaded[device.Device]{
				{Name: "cards", Plugin: late},
				{Name: "widgets", Plugin: &widgets{}},
			}, nil
		})
		f.waitForDevices(t, 1)
		f.pods["u"] = test.pod
		devices := &waits{Devices: f.Devices}
		f.Devices = devices
		var annotations map[string]string
		if test.given != nil {
			annotations = allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": test.given})
		}
		_, err := f.create(t, "u", "main", "api", annotations)
		if devices.waited != test.waited {
			t.Errorf("%s: waited: %t, want %t (%v)", name, devices.waited, test.waited, err)
		}
		if !test.waited && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		close(late.release)
	}
}

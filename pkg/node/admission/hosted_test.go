// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// hostedCard is a device of a hosted plugin.
const (
	hostedResource types.ResourceName = "vendor.example/card"
	hostedCard     types.ResourceName = "resource/group/numa/0/vendor.example:card/card-7/device"
)

// vendor stands for one hosted plugin with one device.
type vendor struct {
	mu       sync.Mutex
	there    bool
	broken   error
	changed  chan struct{}
	requests []string
	answer   *pluginapi.ContainerAllocateResponse // nil for one that names the device
}

func (v *vendor) set(there bool, broken error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.there, v.broken = there, broken
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *vendor) States() ([]devicemanager.State, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	info := types.NewNodeInfo()
	info.Capacity[hostedCard], info.Allocatable[hostedCard] = 1, 0
	info.KubeCap[hostedResource], info.KubeAlloc[hostedResource] = 1, 0
	s := devicemanager.State{
		Resource: hostedResource,
		State:    plugins.State{Info: info, Reported: true, Serving: v.there},
	}
	if v.there {
		info.Allocatable[hostedCard], info.KubeAlloc[hostedResource] = 1, 1
	} else {
		s.Err = errors.New("the device plugin of vendor.example/card is gone")
	}
	return []devicemanager.State{s}, v.changed
}

func (v *vendor) Allocate(
	_ context.Context, resource types.ResourceName, ids []string, _ string,
) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests = append(v.requests, string(resource)+" "+strings.Join(ids, ","))
	if v.broken != nil {
		return nil, v.broken
	}
	if v.answer != nil {
		return proto.Marshal(v.answer)
	}
	return proto.Marshal(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"CARD": ids[0]}})
}

func (v *vendor) PreStart(context.Context, types.ResourceName, []string) error { return nil }

func newVendorFixture(t *testing.T, there bool) (*fixture, *vendor) {
	t.Helper()
	v := &vendor{there: there, changed: make(chan struct{})}
	return bootVendorFixture(t, filepath.Join(t.TempDir(), "grants"), "", v), v
}

// bootVendorFixture is newVendorFixture in a boot of the machine that may find a checkpoint.
func bootVendorFixture(t *testing.T, path, boot string, v *vendor) *fixture {
	t.Helper()
	f := newFixtureAt(
		t,
		path,
		boot,
		func(context.Context) ([]pluginload.Loaded[device.Device], []error) { return nil, nil },
		v,
	)
	<-f.Devices.Synced()
	f.pods["u"] = pods.Pod{
		Namespace: "default", Name: "pod-u", Containers: []pods.Container{{Name: "main"}},
		Requests: map[string][]types.ResourceName{"main": {hostedResource}},
	}
	f.live["u"] = true
	return f
}

func TestAHostedPluginsAnswerIsUsedAgain(t *testing.T) {
	f, v := newVendorFixture(t, true)
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	for range 2 {
		delta, err := f.create(t, "u", "main", "api", annotations)
		if err != nil {
			t.Fatal(err)
		}
		if envs := delta.GetEnvs(); len(envs) != 1 || envs[0].GetKey() != "CARD" ||
			string(envs[0].GetValue()) != "card-7" {
			t.Errorf("the container gets %v", delta)
		}
	}
	if diff := cmp.Diff([]string{"vendor.example/card card-7"}, v.requests); diff != "" {
		t.Errorf("the plugin was asked (-want +got):\n%s", diff)
	}
}

func TestAHostedPluginIsCalledAgainOnceAfterABootForTheSameDevice(t *testing.T) {
	v := &vendor{there: true, changed: make(chan struct{})}
	path := filepath.Join(t.TempDir(), "grants")
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	var want []string
	for _, boot := range []string{"first boot", "second boot"} {
		want = append(want, "vendor.example/card card-7")
		for range 2 {
			f := bootVendorFixture(t, path, boot, v)
			for range 2 {
				if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
					t.Fatal(err)
				}
			}
			annotations = nil // as somebody may have changed it
			if err := f.Grants.(*grants.Checkpoint).Close(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, v.requests); diff != "" {
			t.Errorf("%s: the plugin was asked (-want +got):\n%s", boot, diff)
		}
	}
}

func TestAHostedPluginThatRefusesIsQuotedAndCalledAgain(t *testing.T) {
	f, v := newVendorFixture(t, true)
	v.set(true, errors.New("the device plugin does not allocate card-7: no firmware"))
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	if _, err := f.create(t, "u", "main", "api", annotations); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "no firmware") {
		t.Errorf("the answer is %v", err)
	}
	v.set(true, nil)
	if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
		t.Errorf("when it does: %v", err)
	}
}

func TestAContainerWaitsForTheHostedPluginOfItsDevice(t *testing.T) {
	f, v := newVendorFixture(t, false)
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	done := make(chan error, 1)
	go func() {
		_, err := f.create(t, "u", "main", "api", annotations)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("without the plugin: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	v.set(true, nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAContainerWhoseHostedPluginDoesNotComeIsRefusedForNow(t *testing.T) {
	f, _ := newVendorFixture(t, false)
	from := types.ResourceLocation{"request": hostedCard}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := f.verifyContainer(ctx, pods.Pod{}, "main", from)
	if r := (*refusal)(nil); !errors.As(err, &r) || r.code != codes.Unavailable ||
		!strings.Contains(err.Error(), "the device plugin of vendor.example/card is gone") {
		t.Errorf("the refusal is %v", err)
	}
}

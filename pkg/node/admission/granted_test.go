// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestARestartedContainerGetsTheSameDevicesWhateverTheAnnotationHasBecome(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = requesting
	granted := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	if _, err := f.create(t, "u", "main", "api", granted); err != nil {
		t.Fatal(err)
	}
	delete(f.pods, "u") // the API server may be away, too
	for name, annotations := range map[string]map[string]string{
		"changed": allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card1}}),
		"removed": nil,
		"broken":  {deviceinfo.Annotation: "{"},
	} {
		config, err := f.create(t, "u", "main", "api", annotations)
		if err != nil || len(config.GetDevices()) != 1 || config.Devices[0].HostPath != "/dev/gpu0" {
			t.Errorf("%s: %v, %v", name, config, err)
		}
	}
}

func TestASecondPodGetsTheDeviceOnlyWhenTheFirstIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		f.pods["a"], f.pods["b"] = requesting, requesting
		same := map[string][]types.ResourceName{"main": {card0}}
		if _, err := f.create(t, "a", "main", "api", allocation(t, "pod-a", "node-1", same)); err != nil {
			t.Fatal(err)
		}
		_, err := f.create(t, "b", "main", "api", allocation(t, "pod-b", "node-1", same))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "default/pod-a") {
			t.Errorf("while the first lives: %v", err)
		}
		delete(f.live, "a")
		time.Sleep(2 * conflictMemory)
		if _, err := f.create(t, "b", "main", "api", allocation(t, "pod-b", "node-1", same)); err != nil {
			t.Errorf("when the first is gone: %v", err)
		}
	})
}

// forgetful is a checkpoint that finds a pod gone right after it said that it has it.
type forgetful struct{ Grants }

func (forgetful) Has(string) bool { return true }

func TestAPodThatLeavesTheRecordIsLookedUp(t *testing.T) {
	f := newFixture(t, true)
	f.Admission.Grants = forgetful{f.Admission.Grants}
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	if _, err := f.create(t, "u", "main", "api", annotations); status.Code(err) != codes.Unavailable {
		t.Errorf("nobody knows the pod: %v, want Unavailable", err)
	}
	f.pods["u"] = requesting
	if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
		t.Errorf("the API server has listed it: %v", err)
	}
}

func TestAMaskIsHeldByAnyNumberOfPods(t *testing.T) {
	f := newFixture(t, true)
	for _, uid := range []string{"a", "b"} {
		f.pods[uid] = requesting
		granted := allocation(t, "pod-"+uid, "node-1", map[string][]types.ResourceName{"main": {kind}})
		if _, err := f.create(t, uid, "main", "api", granted); err != nil {
			t.Errorf("pod %s: %v", uid, err)
		}
	}
}

// The record is lost while some containers of a pod were never created. Those that were keep their
// devices, whatever the annotation says; the others get what it gives them.
func TestAPodWhoseRecordIsLostInTheMiddleOfItsStartGetsTheRestOfItsDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grants")
	load := func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		return []pluginload.Loaded[device.Device]{{Name: "cards", Plugin: &cards{}}}, nil
	}
	both := map[string][]types.ResourceName{"main": {card0}, "side": {card1}}
	before := newFixtureAt(t, path, "", load)
	before.pods["u"] = requesting
	first, err := before.create(t, "u", "main", "api", allocation(t, "pod-u", "node-1", both))
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Grants.(*grants.Checkpoint).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	after := newFixtureAt(t, path, "", load)
	after.pods["u"], after.live["u"] = requesting, true
	after.encoded = map[string][]grants.RuntimeContainer{
		"u": {{ID: "1", Name: "main", Encoded: first.Annotations[grants.Annotation]}},
	}
	changed := map[string][]types.ResourceName{"main": {card1}}
	for _, step := range []struct {
		container string
		claims    map[string][]types.ResourceName
		want      string
	}{
		{"main", changed, "/dev/gpu0"}, {"side", both, "/dev/gpu1"}, {"main", changed, "/dev/gpu0"},
		{"side", changed, "/dev/gpu1"},
	} {
		got, err := after.create(t, "u", step.container, "api", allocation(t, "pod-u", "node-1", step.claims))
		if err != nil || len(got.GetDevices()) != 1 || got.Devices[0].HostPath != step.want {
			t.Errorf("container %s gets %v, %v; want %s", step.container, got.GetDevices(), err, step.want)
		}
	}
}

// The sandbox of a pod is created a few hundred milliseconds before its first container.
func TestARefusalAheadOfTheFirstContainerIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		f.pods["a"], f.pods["b"] = requesting, requesting
		same := map[string][]types.ResourceName{"main": {card0}}
		if _, err := f.create(t, "a", "main", sourceAPI, allocation(t, "pod-a", "node-1", same)); err != nil {
			t.Fatal(err)
		}
		annotations := allocation(t, "pod-b", "node-1", same)
		ahead := Pod{UID: "b", Namespace: "default", Name: "pod-b", Annotations: maps.Clone(annotations)}
		ahead.Annotations[sourceAnnotation] = sourceAPI
		if _, err := f.Claims(t.Context(), ahead); status.Code(err) == codes.OK {
			t.Fatal("two pods were granted one device")
		}
		delete(f.live, "a")
		time.Sleep(300 * time.Millisecond)
		if _, err := f.create(t, "b", "main", sourceAPI, annotations); err != nil {
			t.Errorf("when the holder is gone: %v", err)
		}
	})
}

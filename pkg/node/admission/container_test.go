// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// given is a container's share of an allocation: one request, met by from.
func given(from types.ResourceName) types.ContainerInfo {
	return types.ContainerInfo{
		DevRequests:  types.ResourceList{"resource/group/gpu/a/cards": 1},
		AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": from},
	}
}

// A pod's init container and main container share a card, as they never run together; its sidecar,
// which runs along, has one of its own. Somebody debugs the pod later.
func TestEachContainerOfAPodGetsWhatWasGivenToIt(t *testing.T) {
	value, err := deviceinfo.EncodePod(&types.PodInfo{
		Name: "pod-u", NodeName: "node-1",
		InitContainers:    map[string]types.ContainerInfo{"first": given(card0)},
		RunningContainers: map[string]types.ContainerInfo{"main": given(card0), "log": given(card1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{deviceinfo.Annotation: value}
	f := newFixture(t, true)
	f.pods["u"] = requesting
	for _, step := range []struct{ container, device string }{
		{"first", "/dev/gpu0"},
		{"log", "/dev/gpu1"},
		{"main", "/dev/gpu0"},
		{"side", ""},
		{"debugger-x7k2p", ""}, // an ephemeral container
		{"log", "/dev/gpu1"},   // crashed, and is started again
		{"first", "/dev/gpu0"}, // the sandbox was lost: all over again
		{"main", "/dev/gpu0"},
	} {
		config, err := f.create(t, "u", step.container, "api", annotations)
		if err != nil {
			t.Fatalf("%s: %v", step.container, err)
		}
		var got string
		for _, device := range config.GetDevices() {
			got += device.GetHostPath()
		}
		if got != step.device {
			t.Errorf("%s got %q, want %q", step.container, got, step.device)
		}
	}
}

// What did not come from the API server was not scheduled. It may claim what it likes: it passes as
// it is, and gets nothing, whatever state the plugins are in.
func TestContainersThatWereNeverScheduledPassUntouched(t *testing.T) {
	claim := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})[deviceinfo.Annotation]
	metadata := &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "kube-system", Name: "pod-u"}
	for name, sandbox := range map[string]*runtimeapi.PodSandboxConfig{
		"a static pod": {
			Metadata: metadata, Annotations: map[string]string{sourceAnnotation: "file", deviceinfo.Annotation: claim},
		},
		"a static pod from a URL": {
			Metadata: metadata, Annotations: map[string]string{sourceAnnotation: "http", deviceinfo.Annotation: claim},
		},
		"a sandbox without its pod's source": {
			Metadata: metadata, Annotations: map[string]string{deviceinfo.Annotation: claim},
		},
		"a sandbox without annotations": {Metadata: metadata},
		"a sandbox without a pod":       {},
		"a container without a sandbox": nil,
	} {
		for _, working := range []bool{true, false} {
			f := newFixture(t, working)
			f.pods["u"], f.Firewall = requesting, f.wall
			raw, err := proto.Marshal(&runtimeapi.CreateContainerRequest{
				PodSandboxId: "s", SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if suffix, err := f.CreateContainer(context.Background(), raw); err != nil || len(suffix) > 0 {
				t.Errorf("%s, plugins working: %t: %q, %v", name, working, suffix, err)
			}
		}
	}
}

func TestAContainerGetsTheAnswerOfItsPluginAndItsOwnPartOfTheAllocation(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = pods.Pod{
		Namespace:  "default",
		Containers: []pods.Container{{Name: "main"}},
		Requests:   requesting.Requests,
	}
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card1}})
	got, err := f.create(t, "u", "main", "api", annotations)
	if err != nil {
		t.Fatal(err)
	}
	granted, _, err := f.Grants.Granted(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := f.Grants.EncodePart(granted, "main")
	if err != nil || !strings.HasSuffix(encoded, `.{"devices":{"gpu/1":{"cards":1}}}`) {
		t.Fatalf("carried: %q, %v", encoded, err)
	}
	want := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/gpu1", HostPath: "/dev/gpu1", Permissions: "mrw"}},
		Annotations: map[string]string{grants.Annotation: encoded},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAPluginThatFailsIsTriedAgain(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = requesting
	f.plugin.err = errors.New("driver is loading")
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	if _, err := f.create(t, "u", "main", "api", annotations); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "driver is loading") {
		t.Errorf("got %v", err)
	}
	f.plugin.err = nil
	if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
		t.Errorf("again: %v", err)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// given is a container's share of an allocation: one request, met by from.
func given(from types.ResourceName) types.ContainerInfo {
	return types.ContainerInfo{
		DevRequests:  types.ResourceList{"resource/group/gpu/a/cards": 1},
		AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": from},
	}
}

// A pod's init container and main container share a card, as they never run together; its sidecar, which runs along, has one of
// its own. Somebody debugs the pod later.
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
	b := newBench(t, true)
	b.pods["u"] = asking
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
		config, err := b.create(t, "u", step.container, "api", annotations)
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

// What did not come from the API server was not scheduled. It may claim what it likes: it passes as it is, and gets nothing,
// whatever state the plugins are in.
func TestContainersThatWereNeverScheduledPassUntouched(t *testing.T) {
	claim := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})[deviceinfo.Annotation]
	metadata := &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "kube-system", Name: "pod-u"}
	for name, sandbox := range map[string]*runtimeapi.PodSandboxConfig{
		"a static pod":                       {Metadata: metadata, Annotations: map[string]string{sourceAnnotation: "file", deviceinfo.Annotation: claim}},
		"a static pod from a URL":            {Metadata: metadata, Annotations: map[string]string{sourceAnnotation: "http", deviceinfo.Annotation: claim}},
		"a sandbox without its pod's source": {Metadata: metadata, Annotations: map[string]string{deviceinfo.Annotation: claim}},
		"a sandbox without annotations":      {Metadata: metadata},
		"a sandbox without a pod":            {},
		"a container without a sandbox":      nil,
	} {
		for _, working := range []bool{true, false} {
			b := newBench(t, working)
			b.pods["u"], b.Isolate = asking, true
			raw, err := proto.Marshal(&runtimeapi.CreateContainerRequest{
				PodSandboxId: "s", SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if suffix, err := b.CreateContainer(context.Background(), raw); err != nil || len(suffix) > 0 {
				t.Errorf("%s, plugins working: %t: %q, %v", name, working, suffix, err)
			}
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// runSandbox has the kubelet create a sandbox.
func (f *fixture) runSandbox(ctx context.Context, t *testing.T, uid, source string, annotations map[string]string) {
	t.Helper()
	all := map[string]string{sourceAnnotation: source}
	maps.Copy(all, annotations)
	raw, err := proto.Marshal(&runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Uid: uid, Namespace: "default", Name: "pod-" + uid},
		Annotations: all,
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.RunPodSandbox(ctx, raw)
}

// Network plugins read who holds which device while the runtime creates the sandbox.
func TestAPodHoldsItsDevicesBeforeItsSandboxIsCreated(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"], f.live["u"] = requesting, true
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})

	f.runSandbox(t.Context(), t, "u", sourceAPI, annotations)

	granted, ok, err := f.Grants.Granted(t.Context(), "u")
	if err != nil || !ok || len(granted.PodInfo.RunningContainers["main"].AllocateFrom) != 1 {
		t.Errorf("the pod holds %v, %v, %v", granted, ok, err)
	}
	if _, err := f.create(t, "u", "main", sourceAPI, annotations); err != nil {
		t.Error(err)
	}
	if len(f.outcomes) != 1 || f.outcomes[0] != Injected {
		t.Errorf("containers are %v, want one injected", f.outcomes)
	}
}

// unseenPods knows no pod until the test ends.
type unseenPods struct {
	nodePods
	t *testing.T
}

func (p unseenPods) Lookup(context.Context, string) (pods.Pod, error) {
	p.t.Error("the sandbox waits for its pod")
	return pods.Pod{}, pods.ErrUnknown
}

func TestASandboxWithoutAnAllocationWaitsForNothing(t *testing.T) {
	f := newFixture(t, true)
	f.Admission.Pods = unseenPods{f.Admission.Pods.(nodePods), t}
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	f.runSandbox(t.Context(), t, "u", "file", annotations) // a static pod has none
	f.runSandbox(t.Context(), t, "u", sourceAPI, nil)
	if f.Grants.Has("u") {
		t.Error("the pod is granted devices")
	}
}

func TestASandboxIsNotRefusedForItsDevices(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"], f.live["u"] = requesting, true
	absent := map[string][]types.ResourceName{"main": {"resource/group/gpu/9/cards"}}
	annotations := allocation(t, "pod-u", "node-1", absent)
	f.runSandbox(t.Context(), t, "u", sourceAPI, annotations)
	if f.Grants.Has("u") || len(f.warnings) > 0 || len(f.outcomes) > 0 {
		t.Errorf("granted %v, warnings %q, containers %v", f.Grants.Has("u"), f.warnings, f.outcomes)
	}
	f.runSandbox(t.Context(), t, "u", sourceAPI, map[string]string{"KubeDevice/DeviceInfo": "{"})
	if _, err := f.create(t, "u", "main", sourceAPI, annotations); err == nil || len(f.warnings) != 1 {
		t.Errorf("the container: %v, warnings %q", err, f.warnings)
	}
}

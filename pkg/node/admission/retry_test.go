// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"io/fs"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAHostedPluginIsCalledAgainWhenTheRuntimeDoesNotFindItsCDIDevice(t *testing.T) {
	for name, test := range map[string]struct {
		failure error
		again   bool
	}{
		"a CDI device that the runtime does not find": {
			status.Error(
				codes.Unknown,
				`failed to create containerd container: CDI device injection failed: `+
					`unresolvable CDI devices vendor.example/card=card-7`,
			),
			true,
		},
		"a runtime that is away": {status.Error(codes.Unavailable, "connection refused"), false},
		"a caller that has gone": {errors.New("broken pipe"), false},
		"an image that is gone":  {status.Error(codes.NotFound, "failed to resolve image"), false},
		"a directory on the host that is no more": {
			status.Error(codes.Unknown, `failed to mkdir "/data": no such file or directory`), false,
		},
	} {
		f, v := newVendorFixture(t, true)
		v.answer = &pluginapi.ContainerAllocateResponse{
			CdiDevices: []*pluginapi.CDIDevice{{Name: "vendor.example/card=card-7"}},
		}
		annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
		if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
			t.Fatal(err)
		}
		raw := createRequest(
			t,
			"u",
			"api",
			annotations,
			&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		)
		f.CreationFailed(t.Context(), raw, test.failure)
		delta, err := f.create(t, "u", "main", "api", annotations)
		if err != nil || len(delta.GetCDIDevices()) != 1 {
			t.Errorf("%s: created again with %v, %v", name, delta, err)
		}
		if again := len(v.requests) == 2; again != test.again {
			t.Errorf("%s: the plugin was asked %d times", name, len(v.requests))
		}
	}
}

// without is a file system that lacks one path.
type without struct {
	devNodes
	path string
}

func (w *without) Lstat(path string) (fs.FileInfo, error) {
	if path == w.path {
		return nil, &fs.PathError{Op: "lstat", Path: path, Err: fs.ErrNotExist}
	}
	return w.devNodes.Lstat(path)
}

func TestAHostedPluginIsCalledAgainWhenAPathIsGoneThatItNamed(t *testing.T) {
	f, v := newVendorFixture(t, true)
	host := &without{}
	f.HostFS = host
	node := func(path string) *pluginapi.ContainerAllocateResponse {
		return &pluginapi.ContainerAllocateResponse{
			Devices: []*pluginapi.DeviceSpec{{HostPath: path, ContainerPath: "/dev/card", Permissions: "rw"}},
		}
	}
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	v.answer = node("/dev/card0")
	if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
		t.Fatal(err)
	}
	// The driver was loaded again, and the device has another number.
	host.path, v.answer = "/dev/card0", node("/dev/card1")

	if _, err := f.create(t, "u", "main", "api", annotations); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("with the path of before: %v", err)
	}
	for range 2 {
		delta, err := f.create(t, "u", "main", "api", annotations)
		if err != nil || len(delta.GetDevices()) != 1 || delta.GetDevices()[0].GetHostPath() != "/dev/card1" {
			t.Errorf("when the kubelet tries again: %v, %v", delta, err)
		}
	}
	if len(v.requests) != 2 {
		t.Errorf("the plugin was asked %d times", len(v.requests))
	}
}

// Two plugins cannot both have their way, and one of them says something else later.
func TestAHostedPluginIsCalledAgainWhenItsAnswerCouldNotBeUsed(t *testing.T) {
	f, v := newVendorFixture(t, true)
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	v.answer = &pluginapi.ContainerAllocateResponse{CdiDevices: []*pluginapi.CDIDevice{{Name: "no CDI name"}}}
	if _, err := f.create(t, "u", "main", "api", annotations); status.Code(err) != codes.FailedPrecondition {
		t.Fatalf("an answer that cannot be used: %v", err)
	}
	v.answer = &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"CARD": "card-7"}}
	delta, err := f.create(t, "u", "main", "api", annotations)
	if err != nil || string(delta.GetEnvs()[0].GetValue()) != "card-7" {
		t.Errorf("when the plugin answers something else: %v, %v", delta, err)
	}
}

func TestThePodGetsAnEventWithPartsThatItsContainerLacks(t *testing.T) {
	f, v := newVendorFixture(t, true)
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {hostedCard}})
	v.answer = &pluginapi.ContainerAllocateResponse{Annotations: map[string]string{"io.kubernetes.x": "1"}}
	if _, err := f.create(t, "u", "main", "api", annotations); err != nil {
		t.Fatal(err)
	}
	want := `container "main": device plugin "vendor.example/card": annotation io.kubernetes.x is left out: ` +
		`only the kubelet may set it`
	if len(f.leftOut) != 1 || f.leftOut[0] != want {
		t.Errorf("the pod hears %q, want %q", f.leftOut, want)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicecheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime is a container runtime with three containers of one name.
type runtime struct {
	runtimeapi.RuntimeServiceClient
	handler, info string
}

func (runtime) ListContainers(
	_ context.Context, request *runtimeapi.ListContainersRequest, _ ...grpc.CallOption,
) (*runtimeapi.ListContainersResponse, error) {
	selector := request.GetFilter().GetLabelSelector()
	if selector["io.kubernetes.pod.uid"] != "u" || selector["io.kubernetes.container.name"] != "main" {
		return &runtimeapi.ListContainersResponse{}, nil
	}
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{Id: "older", PodSandboxId: "s", CreatedAt: 20}, {Id: "newest", PodSandboxId: "s", CreatedAt: 30},
		{Id: "oldest", PodSandboxId: "s", CreatedAt: 10},
	}}, nil
}

func (r runtime) PodSandboxStatus(
	context.Context, *runtimeapi.PodSandboxStatusRequest, ...grpc.CallOption,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{RuntimeHandler: r.handler}}, nil
}

func (r runtime) ContainerStatus(
	_ context.Context, request *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption,
) (*runtimeapi.ContainerStatusResponse, error) {
	if request.GetContainerId() != "newest" || !request.GetVerbose() {
		return nil, errors.New("another container")
	}
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": r.info}}, nil
}

// crioDocument is a configuration of CRI-O's.
const crioDocument = `
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_type = "oci"
[crio.runtime.runtimes.nvidia]
runtime_path = "/usr/bin/nvidia-container-runtime"
[crio.runtime.runtimes.kata]
runtime_path = "/usr/bin/containerd-shim-kata-v2"
runtime_type = "vm"
`

// served is a configuration, or why it cannot be read.
type served struct {
	document string
	err      error
}

func (s served) Configuration(context.Context) (string, error) { return s.document, s.err }

func TestTheRuntimeSaysWhatStartsAContainer(t *testing.T) {
	for name, test := range map[string]struct {
		handler, info string
		want          Container
		says          string
	}{
		"containerd, by default": {
			info: `{"runtimeType": "io.containerd.runc.v2", "runtimeOptions": {}, "runtimeSpec": {}}`,
			want: Container{Program: "runc"},
		},
		"containerd, without options": {
			info: `{"runtimeType": "io.containerd.runc.v2", "runtimeOptions": null, "runtimeSpec": {}}`,
			want: Container{Program: "runc"},
		},
		"containerd, another program": {
			handler: "nvidia", info: `{"runtimeType": "io.containerd.runc.v2",
				"runtimeOptions": {"binary_name": "/usr/bin/nvidia-container-runtime"}, "runtimeSpec": {}}`,
			want: Container{Handler: "nvidia", Program: "/usr/bin/nvidia-container-runtime"},
		},
		"containerd, a virtual machine": {
			handler: "kata", info: `{"runtimeType": "io.containerd.kata.v2", "runtimeSpec": {}}`,
			want: Container{Handler: "kata"},
		},
		"a specification with devices, mounts and hooks": {
			info: `{"runtimeType": "io.containerd.runc.v2", "runtimeSpec": {
				"hooks": {"createContainer": [{"path": "/usr/bin/hook"}]},
				"mounts": [{"destination": "/dev", "type": "tmpfs"}, {"destination": "/dev/nvidia1", "type": "bind"}],
				"linux": {"devices": [{"path": "/dev/nvidia0"}]}}}`,
			want: Container{Program: "runc", Hooks: true, Paths: []string{"/dev/nvidia0", "/dev/nvidia1"}},
		},
		"CRI-O, by default": {info: `{"runtimeSpec": {}}`, want: Container{Program: "crun"}},
		"CRI-O, another program": {
			handler: "nvidia", info: `{"runtimeSpec": {}}`,
			want: Container{Handler: "nvidia", Program: "/usr/bin/nvidia-container-runtime"},
		},
		"CRI-O, a virtual machine": {
			handler: "kata", info: `{"runtimeSpec": {}}`, want: Container{Handler: "kata"},
		},
		"no specification":  {info: `{}`, says: "no specification"},
		"no verbose status": {says: "read the verbose status"},
	} {
		r := cri{runtime{handler: test.handler, info: test.info}, served{document: crioDocument}}
		got, found, err := r.Newest(t.Context(), "u", "main", time.Unix(0, 20))
		if test.says != "" {
			if err == nil || found || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, %v, want an error that says %q", name, found, err, test.says)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); err != nil || !found || diff != "" {
			t.Errorf("%s: found %v, %v (-want +got):\n%s", name, found, err, diff)
		}
	}
}

func TestOnlyAContainerSinceATimeCounts(t *testing.T) {
	r := cri{runtime{}, nil}
	if _, found, err := r.Newest(t.Context(), "u", "main", time.Unix(0, 31)); found || err != nil {
		t.Errorf("an older container counts: %v, %v", found, err)
	}
	if _, found, err := r.Newest(t.Context(), "other", "main", time.Unix(0, 0)); found || err != nil {
		t.Errorf("a container of another pod counts: %v, %v", found, err)
	}
}

func TestAConfigurationThatCannotBeReadIsAnError(t *testing.T) {
	refused := errors.New("refused")
	r := cri{runtime{info: `{"runtimeSpec": {}}`}, served{err: refused}}
	if _, _, err := r.Newest(t.Context(), "u", "main", time.Unix(0, 0)); !errors.Is(err, refused) {
		t.Errorf("%v, want %v", err, refused)
	}
	if _, err := crioProgram("[", ""); err == nil {
		t.Error("a broken configuration is read")
	}
}

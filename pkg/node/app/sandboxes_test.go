// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"maps"
	"path/filepath"
	"sync/atomic"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// countingRuntime has sandboxes with these annotations, and counts for how many it describes.
type countingRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	annotations map[string]string
	described   atomic.Int32
}

func (r *countingRuntime) PodSandboxStatus(context.Context,
	*runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.described.Add(1)
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Annotations: r.annotations},
	}, nil
}

// NRI plugins of containerd's get the annotations of the sandbox, too: NVIDIA's gives devices by
// them (cmd/nvidia-ctk-installer/container/runtime/nri).
func TestASandboxIsReadOnceUnlessItsAnnotationsRequestDevices(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        map[string]string
		described   int32 // for two containers
	}{
		"by CDI": {map[string]string{"cdi.k8s.io/x": "v/c=1"}, map[string]string{"cdi.k8s.io/x": "v/c=1"}, 2},
		"by a file": {
			map[string]string{"devices.crio.io": "/dev/x"}, map[string]string{"devices.crio.io": "/dev/x"}, 2,
		},
		"by nothing":   {map[string]string{"note": "v/c=1"}, nil, 1},
		"by one of it": {map[string]string{"note": "", "v.cdi.k8s.io": "1"}, map[string]string{"v.cdi.k8s.io": "1"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cri.sock")
			runtime := &countingRuntime{annotations: test.annotations}
			serveRuntime(t, path, runtime)
			conn, err := criproxy.Dial(path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			all := newSandboxes(conn)
			for range 2 {
				got, err := all.Annotations(t.Context(), "s")
				if err != nil || !maps.Equal(got, test.want) {
					t.Errorf("%v, %v; want %v", got, err, test.want)
				}
			}
			if described := runtime.described.Load(); described != test.described {
				t.Errorf("the runtime describes the sandbox %d times, want %d", described, test.described)
			}
		})
	}
}

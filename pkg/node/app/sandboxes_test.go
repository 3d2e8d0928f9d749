// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// annotatedSandboxes is a runtime of that name whose sandboxes all have one annotation.
type annotatedSandboxes struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	name, version string
}

func (r annotatedSandboxes) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: r.name, RuntimeVersion: r.version}, nil
}

func (r annotatedSandboxes) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": "{}"}}, nil
}

func (r annotatedSandboxes) PodSandboxStatus(context.Context,
	*runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Annotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=all"},
	}}, nil
}

func TestTheSandboxIsReadUnlessTheRuntimeIsKnownToReadTheRequestAlone(t *testing.T) {
	for name, test := range map[string]struct {
		runtime annotatedSandboxes
		known   bool
		want    int
	}{
		"CRI-O":                   {annotatedSandboxes{name: "cri-o", version: "1.34.0"}, true, 1},
		"containerd":              {annotatedSandboxes{name: "containerd", version: "2.2.0"}, true, 0},
		"another runtime":         {annotatedSandboxes{name: "other", version: "1.0.0"}, true, 1},
		"a runtime not yet known": {annotatedSandboxes{name: "containerd", version: "2.2.0"}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cri.sock")
			serveRuntime(t, path, test.runtime)
			conn, err := criproxy.Dial(path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			support := cdi.NewSupport()
			if test.known {
				go support.Watch(ctx, conn)
				for support.Runtime() == "" && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
			}
			got, err := newSandboxes(conn, support).Annotations(ctx, "s")
			if err != nil || len(got) != test.want {
				t.Errorf("%v, %v; want %d", got, err, test.want)
			}
		})
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listedRuntime is a runtime with containers of two pods, each with that many bytes of variables,
// which it describes by the CRI and sends to NRI plugins.
type listedRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	variables []int

	synchronized, panics atomic.Int32 // how often it sent its list, and panicked over that
}

func (d *listedRuntime) env(i int) []string {
	return []string{"V=" + strings.Repeat("x", d.variables[i])}
}

func (d *listedRuntime) ListPodSandbox(
	context.Context, *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	answer := &runtimeapi.ListPodSandboxResponse{}
	for i := range 2 {
		answer.Items = append(answer.Items, &runtimeapi.PodSandbox{
			Id:       fmt.Sprint("s", i),
			Metadata: &runtimeapi.PodSandboxMetadata{Name: fmt.Sprint("pod-", i), Namespace: "tenant"},
		})
	}
	return answer, nil
}

func (d *listedRuntime) ListContainers(
	_ context.Context, request *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	answer := &runtimeapi.ListContainersResponse{}
	running := runtimeapi.ContainerState_CONTAINER_RUNNING
	if state := request.GetFilter().GetState(); state != nil && state.GetState() != running {
		return answer, nil
	}
	for i := range d.variables {
		answer.Containers = append(answer.Containers, &runtimeapi.Container{
			Id: fmt.Sprint("c", i), PodSandboxId: fmt.Sprint("s", i%2), State: running,
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprint("container-", i)},
		})
	}
	return answer, nil
}

func (d *listedRuntime) ContainerStatus(
	_ context.Context, request *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	var i int
	if _, err := fmt.Sscanf(request.GetContainerId(), "c%d", &i); err != nil {
		return nil, err
	}
	info, err := json.Marshal(map[string]any{
		"sandboxID": fmt.Sprint("s", i%2), "runtimeSpec": specs.Spec{Process: &specs.Process{Env: d.env(i)}},
	})
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: request.GetContainerId()},
		Info:   map[string]string{"info": string(info)},
	}, err
}

// synchronize sends the list to a plugin, as containerd does, which would end with the panic.
func (d *listedRuntime) synchronize(ctx context.Context, sync adaptation.SyncCB) (err error) {
	d.synchronized.Add(1)
	defer func() {
		if cause := recover(); cause != nil {
			d.panics.Add(1)
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	var containers []*api.Container
	for i := range d.variables {
		containers = append(containers, &api.Container{Id: fmt.Sprint("c", i), Env: d.env(i)})
	}
	_, err = sync(ctx, []*api.PodSandbox{{Id: "s0"}, {Id: "s1"}}, containers)
	return err
}

func TestEnrolConnectsToNoRuntimeThatCannotSendItsListOfContainers(t *testing.T) {
	for name, test := range map[string]struct {
		variables []int
		says      []string
	}{
		"a list that can be sent": {variables: slices.Repeat([]int{10}, 12)},
		"one over which the runtime panics": {
			variables: slices.Repeat([]int{1 << 20}, 12),
			says:      []string{`container "container-`, "of pod tenant/pod-", "panics", "Delete these pods"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			endpoint, socket := filepath.Join(dir, "runtime.sock"), filepath.Join(dir, "nri.sock")
			runtime := &listedRuntime{variables: test.variables}
			serveRuntime(t, endpoint, runtime)
			serveNRI(t, socket, runtime.synchronize)
			runtime.synchronized.Store(0) // it lists once for the plugins that it starts itself
			version, err := runtimes{}.CheckNRI(t.Context(), "unix://"+endpoint, socket)
			sent := runtime.synchronized.Load()
			if len(test.says) == 0 && (err != nil || version != "containerd 2.4.2" || sent == 0) {
				t.Errorf("%q, %v", version, err)
			}
			for _, want := range test.says {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v, want %q in it", err, want)
				}
			}
			if len(test.says) > 0 && sent > 0 {
				t.Errorf("the runtime sends its list %d times, and panics %d times", sent, runtime.panics.Load())
			}
		})
	}
}

func TestEnrolConnectsToNoRuntimeWhoseListIsUnknown(t *testing.T) {
	dir := shortDir(t)
	runtime := &listedRuntime{}
	socket := filepath.Join(dir, "nri.sock")
	serveNRI(t, socket, runtime.synchronize)
	runtime.synchronized.Store(0) // it lists once for the plugins that it starts itself
	_, err := runtimes{}.CheckNRI(t.Context(), "unix://"+filepath.Join(dir, "none.sock"), socket)
	if err == nil || runtime.synchronized.Load() > 0 {
		t.Errorf("%v, and the runtime sends its list %d times", err, runtime.synchronized.Load())
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/nrifrontend"
)

// startNRI serves NRI at the path as containerd does, until the test ends.
func startNRI(t *testing.T, path string) *adaptation.Adaptation {
	t.Helper()
	return serveNRI(t, path, func(ctx context.Context, sync adaptation.SyncCB) error {
		_, err := sync(ctx, nil, nil)
		return err
	})
}

// serveNRI serves NRI at the path, with that function which sends the list to a plugin.
func serveNRI(t *testing.T, path string, synchronize adaptation.SyncFn) *adaptation.Adaptation {
	t.Helper()
	dir := t.TempDir()
	served, err := adaptation.New("containerd", "2.4.2", synchronize,
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(path), adaptation.WithPluginPath(filepath.Join(dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(dir, "conf.d")))
	if err != nil {
		t.Fatal(err)
	}
	if err := served.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(served.Stop)
	return served
}

// ending is a runtime with one container, of which it is said what becomes of it.
type ending struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	states  []runtimeapi.ContainerState // before a stop, and after it; none if it is gone
	removed bool
}

func (e *ending) StopContainer(
	context.Context, *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	e.states = e.states[1:]
	return &runtimeapi.StopContainerResponse{}, nil
}

func (e *ending) ContainerStatus(
	context.Context, *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	if len(e.states) == 0 {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: e.states[0]}}, nil
}

func (e *ending) RemoveContainer(
	context.Context, *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	e.removed = true
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func TestAContainerThatWasNotStartedYetIsEndedAsWell(t *testing.T) {
	const created, running, exited = runtimeapi.ContainerState_CONTAINER_CREATED,
		runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for name, test := range map[string]struct {
		states  []runtimeapi.ContainerState
		removed bool
		says    string
	}{
		"one that runs":                     {states: []runtimeapi.ContainerState{running, exited}},
		"one that is gone then":             {states: []runtimeapi.ContainerState{running}},
		"one that was created":              {states: []runtimeapi.ContainerState{created, created}, removed: true},
		"one that is started in between":    {states: []runtimeapi.ContainerState{created, running}, says: "started"},
		"one that has ended by itself then": {states: []runtimeapi.ContainerState{exited, exited}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "runtime.sock")
			runtime := &ending{states: test.states}
			serveRuntime(t, path, runtime)
			conn, err := criproxy.Dial(path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			err = nrifrontend.CRI(conn).EndContainer(t.Context(), "c")
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
			if runtime.removed != test.removed {
				t.Errorf("removed: %v", runtime.removed)
			}
		})
	}
}

func TestTheLifeOfAKubecriThatIsAnNRIPlugin(t *testing.T) {
	dir := shortDir(t)
	train := podOf("train", true)
	_, kubeconfig := startAPIServer(t, train)
	startRuntime(t, filepath.Join(dir, "runtime.sock"))
	options := standalone(dir)
	options.Mode, options.NRISocket = ModeNRI, filepath.Join(dir, "nri.sock")
	options.runDir = filepath.Join(dir, "run")
	options.Kubeconfig, options.MetricsAddress = kubeconfig, freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	url := "http://" + options.MetricsAddress
	eventually(t, url+"/healthz", func(code int, body string) bool {
		return code == http.StatusOK && strings.Contains(body, "[+]nri-requests ok")
	})
	eventually(t, url+"/readyz", func(code int, body string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(body, "[-]nri: kubecri is not registered")
	})
	runtime := startNRI(t, options.NRISocket)
	eventually(t, url+"/readyz", func(_ int, body string) bool {
		// This test serves the runtime, and is none that is known.
		return strings.Contains(body, "[+]nri ok; default validator: unknown until a container is created (") &&
			strings.Contains(body, "is served by ")
	})

	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	maps.Copy(annotations, train.Annotations)
	sandbox := &api.PodSandbox{
		Id: "s", Uid: string(train.UID), Namespace: train.Namespace, Name: train.Name, Annotations: annotations,
	}
	var devices []*api.LinuxDevice
	for len(devices) == 0 { // kubecri may know that it is registered a moment before it is asked
		reply, err := runtime.CreateContainer(ctx, &api.CreateContainerRequest{
			Pod: sandbox, Container: &api.Container{Id: "c", PodSandboxId: "s", Name: "main"},
		})
		if err != nil {
			t.Fatal(err)
		}
		devices = reply.GetAdjust().GetLinux().GetDevices()
	}
	if len(devices) != 1 || devices[0].GetPath() != "/dev/null" {
		t.Errorf("the container is created with %v", devices)
	}
	eventually(t, url+"/metrics", func(_ int, body string) bool {
		return strings.Contains(body, `kubecri_containers_total{outcome="injected"} 1`) &&
			strings.Contains(body, "kubecri_grants 1")
	})
	if _, err := os.Lstat(filepath.Join(dir, "kubecri.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it serves the kubelet, too: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

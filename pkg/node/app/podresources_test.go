// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// kubeletOf tells agents of one pod, whose container main holds nothing that the kubelet knows of.
type kubeletOf struct {
	podresourcesapi.UnimplementedPodResourcesListerServer
	pod string
}

func (k kubeletOf) List(context.Context,
	*podresourcesapi.ListPodResourcesRequest) (*podresourcesapi.ListPodResourcesResponse, error) {
	return &podresourcesapi.ListPodResourcesResponse{PodResources: []*podresourcesapi.PodResources{
		{
			Namespace: "default", Name: k.pod,
			Containers: []*podresourcesapi.ContainerResources{{Name: "main", CpuIds: []int64{7}}},
		},
	}}, nil
}

func (kubeletOf) GetAllocatableResources(context.Context,
	*podresourcesapi.AllocatableResourcesRequest) (*podresourcesapi.AllocatableResourcesResponse, error) {
	return &podresourcesapi.AllocatableResourcesResponse{CpuIds: []int64{7}}, nil
}

// startKubelet serves a kubelet's PodResources API at path until the test ends.
func startKubelet(t *testing.T, path, pod string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	listener, listenErr := net.Listen("unix", path)
	if err := errors.Join(err, listenErr); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, kubeletOf{pod: pod})
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(listener) //nolint:errcheck // it ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
}

func TestAgentsSeeHoldersOfPluginFilesAfterARestartWithoutTheAPIServer(t *testing.T) {
	dir := shortDir(t)
	train := podOf("train", true)
	server, kubeconfig := startAPIServer(t, train)
	runtime := startRuntime(t, filepath.Join(dir, "runtime.sock"))
	options := standalone(dir)
	options.Kubeconfig, options.KubeletDir = kubeconfig, filepath.Join(dir, "kubelet")
	startKubelet(t, options.kubeletPodResourcesPath(), train.Name)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	agrees := func(when string) {
		t.Helper()
		awaitSocket(t, options.podResourcesPath())
		conn, err := criproxy.Dial(options.podResourcesPath())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		agent := podresourcesapi.NewPodResourcesListerClient(conn)
		gpu := []*podresourcesapi.ContainerDevices{{ResourceName: string(gpuCount), DeviceIds: []string{"0"}}}
		pods, err := agent.List(ctx, &podresourcesapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		if diff := cmp.Diff([]*podresourcesapi.PodResources{
			{
				Namespace: "default", Name: train.Name, Containers: []*podresourcesapi.ContainerResources{{Name: "main",
					CpuIds: []int64{7}, Devices: gpu}},
			},
		}, pods.GetPodResources(), protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("pods %s: %v (-want +got):\n%s", when, err, diff)
		}
		all, err := agent.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
		if diff := cmp.Diff(&podresourcesapi.AllocatableResourcesResponse{CpuIds: []int64{7}, Devices: gpu}, all,
			protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("allocatable resources %s: %v (-want +got):\n%s", when, err, diff)
		}
	}

	end := begin(t, options)
	awaitSocket(t, filepath.Join(dir, "kubecri.sock"))
	conn, err := criproxy.Dial(filepath.Join(dir, "kubecri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).CreateContainer(ctx, creation(train)); err != nil {
		t.Fatal(err)
	}
	<-runtime.created
	agrees("while the pod runs")
	end()
	server.stop()
	begin(t, options)
	agrees("after a restart without the API server")
}

func TestAgentsSeeWhatAPodWillHoldBeforeItsFirstContainer(t *testing.T) {
	for name, test := range map[string]struct {
		mode seal.Mode
		want int
	}{
		"seals are off":      {seal.Off, 1},
		"seals are enforced": {seal.Enforce, 0}, // the pod has none
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			train := podOf("train", true)
			_, kubeconfig := startAPIServer(t, train)
			startRuntime(t, filepath.Join(dir, "runtime.sock"))
			options := standalone(dir)
			options.Kubeconfig, options.KubeletDir = kubeconfig, filepath.Join(dir, "kubelet")
			options.MetricsAddress = freeAddress(t)
			if test.mode != seal.Off {
				options.SealMode, options.SealCertificates = test.mode, certificates(t, dir)
			}
			startKubelet(t, options.kubeletPodResourcesPath(), train.Name)
			begin(t, options)
			eventually(t, "http://"+options.MetricsAddress+"/readyz",
				func(code int, _ string) bool { return code == http.StatusOK })
			conn, err := criproxy.Dial(options.podResourcesPath())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			listed, err := podresourcesapi.NewPodResourcesListerClient(conn).List(t.Context(),
				&podresourcesapi.ListPodResourcesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if devices := listed.GetPodResources()[0].GetContainers()[0].GetDevices(); len(devices) != test.want {
				t.Errorf("the pod has %v, want %d devices", devices, test.want)
			}
		})
	}
}

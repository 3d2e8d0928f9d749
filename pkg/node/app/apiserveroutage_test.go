// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// podOf returns a running pod of node-1, with or without the GPU.
func podOf(uid string, gpu bool) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "pod-" + uid, UID: apitypes.UID(uid), ResourceVersion: "1",
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if gpu {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(
			gpuCount): resource.MustParse("1")}
		pod.Annotations = map[string]string{deviceinfo.Annotation: fmt.Sprintf(
			`{"podname":%q,"nodename":"node-1","runningcontainer":{"main":{"devrequests":{%q:1},"allocatefrom":{%q:%q}}}}`,
			pod.Name, gpuCard, gpuCard, gpuCard)}
	}
	return pod
}

// creation returns the kubelet's request to create the pod's container.
func creation(pod corev1.Pod) *runtimeapi.CreateContainerRequest {
	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	for key, value := range pod.Annotations {
		annotations[key] = value
	}
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: "sandbox",
		Config:       &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Uid: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace},
			Annotations: annotations,
		},
	}
}

// begin starts a kubecri and returns a function that drains and ends it.
func begin(t *testing.T, options *Options) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	once := false
	end = func() {
		if once {
			return
		}
		once = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("kubecri ended with %v", err)
		}
	}
	t.Cleanup(end)
	return end
}

func TestNoContainerOfAKnownPodWaitsForTheAPIServer(t *testing.T) {
	for name, away := range map[string]func(*apiServer){
		"it hangs": (*apiServer).hang,
		"it ended": (*apiServer).stop,
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			plain, train := podOf("plain", false), podOf("train", true)
			server, kubeconfig := startAPIServer(t, plain, train)
			runtime := startRuntime(t, filepath.Join(dir, "runtime.sock"))
			options := NewOptions()
			options.NRISocket = "" // of this machine
			options.NodeName = "node-1"
			options.UpstreamEndpoint = "unix://" + filepath.Join(dir, "runtime.sock")
			options.ServeEndpoint = "unix://" + filepath.Join(dir, "kubecri.sock")
			options.StateDir = filepath.Join(dir, "state")
			options.MetricsAddress = freeAddress(t)
			options.Kubeconfig = kubeconfig
			options.loadPlugins = loadOneGPU
			ready := "http://" + options.MetricsAddress + "/readyz"

			end := begin(t, options)
			eventually(t, ready, func(code int, _ string) bool { return code == http.StatusOK })
			away(server)
			create := func(when string) {
				conn, err := criproxy.Dial(filepath.Join(dir, "kubecri.sock"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				for _, pod := range []corev1.Pod{plain, train} {
					if _, err := runtimeapi.NewRuntimeServiceClient(conn).CreateContainer(ctx,
						creation(pod)); err != nil {
						t.Errorf("%s, pod %s: %v", when, pod.Name, err)
						continue
					}
					devices := (<-runtime.created).GetConfig().GetDevices()
					if injected := len(devices) == 1 &&
						devices[0].GetHostPath() == "/dev/null"; injected != (len(pod.Annotations) > 0) {
						t.Errorf("%s, pod %s has the devices %v", when, pod.Name, devices)
					}
				}
			}
			create("while the API server is away")
			end()

			options.MetricsAddress = ""
			begin(t, options)
			awaitSocket(t, filepath.Join(dir, "kubecri.sock"))
			create("after a restart without the API server")
		})
	}
}

// awaitSocket waits until kubecri serves the socket.
func awaitSocket(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for err := socketAnswers(path).run(ctx); err != nil; err = socketAnswers(path).run(ctx) {
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

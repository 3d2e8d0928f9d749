// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// streamedEvents is the length of a stream of events.
const streamedEvents = 10_000

// workload is one kind of call.
type workload struct {
	name    string
	method  string
	request []byte
	replies int
	callers int
	// calls is how many each caller makes in a round.
	calls int
}

// The names that goals are about.
const (
	passedCreate   = "CreateContainer, passed"
	injectedCreate = "CreateContainer, injected"
	list1000       = "ListContainers of 1000"
	largestLists   = "ListContainers of 16000, 8 callers"
)

// workloads returns all, the ones that need most memory last.
func workloads() ([]*workload, error) {
	var all []*workload
	var problem error
	add := func(name, method string, request proto.Message, replies, callers, calls int) {
		raw, err := proto.Marshal(request)
		if err != nil {
			problem = err
		}
		all = append(all, &workload{name, method, raw, replies, callers, calls})
	}
	add("Version", runtimeapi.RuntimeService_Version_FullMethodName, &runtimeapi.VersionRequest{}, 1, 1, 400)
	add(passedCreate, runtimeapi.RuntimeService_CreateContainer_FullMethodName, createRequest(plainPod), 1, 1, 400)
	add(injectedCreate, runtimeapi.RuntimeService_CreateContainer_FullMethodName, createRequest(devicePod), 1, 1, 400)
	add("GetContainerEvents, 10000 of them", runtimeapi.RuntimeService_GetContainerEvents_FullMethodName,
		&runtimeapi.GetEventsRequest{}, streamedEvents, 1, 4)
	for _, size := range []struct{ containers, calls, calls8 int }{{100, 200, 40}, {1000, 60, 10}, {16000, 5, 2}} {
		request := &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{Id: strconv.Itoa(size.containers)}}
		name := fmt.Sprintf("ListContainers of %d", size.containers)
		add(name, runtimeapi.RuntimeService_ListContainers_FullMethodName, request, 1, 1, size.calls)
		add(name+", 8 callers", runtimeapi.RuntimeService_ListContainers_FullMethodName, request, 1, 8, size.calls8)
	}
	return all, problem
}

// The pods whose containers are created, by UID.
const (
	plainPod  = "6f1c3a52-8f6e-4d0e-9c39-0d3a5b1f0001"
	devicePod = "6f1c3a52-8f6e-4d0e-9c39-0d3a5b1f0002"
)

// nodeName is that of kubecri's node.
const nodeName = "bench"

// allocation is what the scheduler gave a pod: one GPU.
func allocation(podName string, gpu int) *types.PodInfo {
	container := types.NewContainerInfo()
	const wanted = "resource/group/gpu/0/cards"
	container.DevRequests[wanted] = 1
	container.AllocateFrom[wanted] = types.ResourceName(fmt.Sprintf("resource/group/gpu/sim-%d/cards", gpu))
	pod := types.NewPodInfo()
	pod.Name, pod.NodeName = podName, nodeName
	pod.RunningContainers["main"] = *container
	return pod
}

// createRequest is what the kubelet sends for a small container of the pod, of about 4 kB.
func createRequest(uid string) *runtimeapi.CreateContainerRequest {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: "sha256:" + containerID(7)},
		Command:  []string{"sleep", "3600"},
		LogPath:  "main/0.log",
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 1024}},
	}
	for i := range 40 {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: fmt.Sprintf("SERVICE_%d_HOST", i),
			Value: []byte("10.96.104.217, and a few bytes more of text")})
	}
	for i := range 6 {
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{
			ContainerPath: fmt.Sprintf("/etc/mounted/%d", i), HostPath: "/var/lib/kubelet/pods/" + uid +
				"/volumes/kubernetes.io~configmap/config",
		})
	}
	annotations := map[string]string{"kubernetes.io/config.source": "api",
		"kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z"}
	if uid == devicePod {
		// What is written here is never too large, and well-formed.
		annotations[deviceinfo.Annotation], _ = deviceinfo.EncodePod(allocation(uid, 0))
	}
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: containerID(3),
		Config:       config,
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Uid: uid, Namespace: "default"},
			Hostname:     uid,
			LogDirectory: "/var/log/pods/default_" + uid,
			Annotations:  annotations,
		},
	}
}

func containerID(n int) string { return fmt.Sprintf("%064x", n+1<<40) }

// containerList is a list of containers of about a kilobyte each, as the kubelet labels and
// annotates them.
func containerList(count int) *runtimeapi.ListContainersResponse {
	list := &runtimeapi.ListContainersResponse{}
	for i := range count {
		name := fmt.Sprintf("web-%08d", i)
		list.Containers = append(list.Containers, &runtimeapi.Container{
			Id:           containerID(i),
			PodSandboxId: containerID(i + count),
			Metadata:     &runtimeapi.ContainerMetadata{Name: "main", Attempt: uint32(i % 3)},
			Image:        &runtimeapi.ImageSpec{Image: "sha256:" + containerID(9)},
			ImageRef:     "sha256:" + containerID(9),
			State:        runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt:    1_760_000_000_000_000_000 + int64(i),
			Labels: map[string]string{
				"io.kubernetes.container.name": "main", "io.kubernetes.pod.name": name,
				"io.kubernetes.pod.namespace": "default",
				"io.kubernetes.pod.uid":       fmt.Sprintf("6f1c3a52-8f6e-4d0e-9c39-%012d", i),
			},
			Annotations: map[string]string{
				"io.kubernetes.container.hash": "5a1b2c3d", "io.kubernetes.container.restartCount": "0",
				"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
				"io.kubernetes.container.terminationMessagePolicy": "File",
				"io.kubernetes.pod.terminationGracePeriod":         "30",
				"io.kubernetes.container.ports":                    `[{"containerPort":8080,"protocol":"TCP"}]`,
			},
		})
	}
	return list
}

func containerEvent() *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: containerID(1), ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		CreatedAt: 1_760_000_000_000_000_000,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: containerID(2), Metadata: &runtimeapi.PodSandboxMetadata{Name: "web-0", Uid: plainPod,
				Namespace: "default"},
			Labels: map[string]string{
				"io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "default",
				"io.kubernetes.pod.uid": plainPod,
			},
		},
		ContainersStatuses: []*runtimeapi.ContainerStatus{
			{Id: containerID(1), Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		},
	}
}

// sandboxStatus is the status of each sandbox.
func sandboxStatus() *runtimeapi.PodSandboxStatusResponse {
	return &runtimeapi.PodSandboxStatusResponse{Status: containerEvent().GetPodSandboxStatus()}
}

// imageStatus is the status of each image, with what kubecri reads of its configuration.
func imageStatus() *runtimeapi.ImageStatusResponse {
	return &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: "sha256:" + containerID(7)},
		Info:  map[string]string{"info": `{"imageSpec":{"config":{"Env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}}}`},
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// Sockets of a node where the CRI is served.
const (
	kubecriSocket    = "/run/kubedevice/kubecri.sock"
	containerdSocket = "/run/containerd/containerd.sock"
)

// restorePod runs a pod, and has it restored from a checkpoint by a call in the kubelet's place. It
// succeeds if the runtime gets the call.
func restorePod(ctx context.Context, p *trial, arguments struct {
	GPUs        int64 `json:"gpus"`
	PastKubecri bool  `json:"past kubecri"`
}) (Got, error) {
	socket := p.kubeletSocket()
	if arguments.PastKubecri {
		socket = containerdSocket
	}
	tenant, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	pod, err := tenant.RunPod(ctx, tolerant(clustertest.On(p.node(scheduled).Name, p.pod("restored", arguments.GPUs))))
	if err != nil {
		return Got{}, err
	}
	runtime, end, err := p.runtime(scheduled, socket)
	if err != nil {
		return Got{}, err
	}
	defer end()
	_, err = runtime.RestorePod(ctx, &runtimeapi.RestorePodRequest{
		CheckpointPath: "/var/lib/checkpoint",
		Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace,
				Uid: string(pod.UID)},
			Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		},
		ContainerConfigs: []*runtimeapi.ContainerConfig{{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		}},
	})
	said := status.Convert(err).Message()
	if strings.HasPrefix(said, "kubecri:") {
		return Got{RefusedByNode, said}, nil
	}
	return Got{Succeeds, fmt.Sprintf("the runtime is asked to restore the pod, and says %q", said)}, nil
}

// kubeletSocket returns where the kubelet calls the CRI: kubecri, or the runtime where kubecri is
// its NRI plugin.
func (s *Stage) kubeletSocket() string {
	if s.mode == cluster.ModeNRI {
		return containerdSocket
	}
	return kubecriSocket
}

// runtime returns a client of the CRI at a socket of a node, until end.
func (s *Stage) runtime(node int, socket string) (client runtimeapi.RuntimeServiceClient, end func(), err error) {
	conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return s.node(node).Sandbox().Dial(ctx, "unix", socket)
		}))
	if err != nil {
		return nil, nil, err
	}
	end = func() { conn.Close() }
	return runtimeapi.NewRuntimeServiceClient(conn), end, nil
}

// listLimit is what the list of a node's containers may have in bytes, where podsOnNode pods run on
// it of as many containers as perPod: gRPC's default for a message.
const listLimit, podsOnNode, perPod = 4 << 20, 110, 20

// fillListOfContainers runs a pod of perPod containers, each with a share of 8 GPUs, and finds out
// how long the list would be of a node full of such pods. It succeeds if that is too long. Earlier
// says that there is a container as of an earlier release.
func fillListOfContainers(ctx context.Context, p *trial, arguments struct {
	Earlier bool `json:"earlier"`
}) (Got, error) {
	tenant, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	node := p.node(scheduled)
	pod := clustertest.On(node.Name, p.pod("large", 0))
	requestMemory(pod, perPod, 8)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image, pod.Spec.Containers[i].Command = pod.Spec.Containers[0].Image, clustertest.Idle
	}
	padded := fmt.Sprintf(`{"x":%q,`, strings.Repeat("x", 20<<10))
	pod.Annotations[deviceinfo.Annotation] = padded + pod.Annotations[deviceinfo.Annotation][1:]
	if pod, err = tenant.RunPod(ctx, pod); err != nil {
		return Got{}, err
	}
	if arguments.Earlier {
		if err := node.CreateInSandbox(ctx, pod, "earlier", map[string]string{
			grants.Annotation: padded + pod.Annotations[deviceinfo.Annotation][1:],
		}); err != nil {
			return Got{}, err
		}
	}
	runtime, end, err := p.runtime(scheduled, p.kubeletSocket())
	if err != nil {
		return Got{}, err
	}
	defer end()
	list, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return Got{}, err
	}
	longest, count := 0, 0
	sandbox, err := p.sandboxOf(ctx, runtime, pod)
	if err != nil {
		return Got{}, err
	}
	for _, container := range list.GetContainers() {
		if container.GetPodSandboxId() == sandbox {
			longest, count = max(longest, proto.Size(container)), count+1
		}
	}
	if count < perPod {
		return Got{}, fmt.Errorf("the runtime lists %d containers of pod %s", count, pod.Name)
	}
	got := Got{NoEffect, fmt.Sprintf("%d bytes of %d", longest*perPod*podsOnNode, listLimit)}
	if longest*perPod*podsOnNode > listLimit {
		got.Outcome = Succeeds
	}
	return got, nil
}

// sandboxOf returns the ID of a pod's sandbox.
func (s *Stage) sandboxOf(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, pod *corev1.Pod) (string,
	error) {
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	for _, sandbox := range list.GetItems() {
		if sandbox.GetMetadata().GetUid() == string(pod.UID) {
			return sandbox.GetId(), nil
		}
	}
	if err == nil {
		err = fmt.Errorf("pod %s has no sandbox", pod.Name)
	}
	return "", err
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path"
	"strings"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// annotating is a device plugin that gives each container an annotation.
type annotating struct {
	*fakeplugin.Plugin
	key, value string
}

// Allocate implements the API.
func (g *annotating) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse,
	error) {
	response := &pluginapi.AllocateResponse{}
	for range request.GetContainerRequests() {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Annotations: map[string]string{g.key: g.value},
		})
	}
	return response, nil
}

// annotateContainers registers a plugin in a directory of a node, which gives its containers an
// annotation. The attempt succeeds if a container runs with it.
func annotateContainers(ctx context.Context, p *trial, arguments struct {
	Node      string `json:"node"`
	Directory string `json:"directory"`
	Key       string `json:"key"`
	Value     string `json:"value"`
}) (Got, error) {
	directory, key := arguments.Directory, arguments.Key
	node := p.nodeIndex(arguments.Node)
	plugin := &annotating{fakeplugin.New(fakeplugin.Device("d")), key, arguments.Value}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, plugin)
	defer server.Stop()
	endpoint := p.resource() + ".sock"
	if err := p.node(node).Sandbox().Do(func() error {
		listener, err := net.Listen("unix", path.Join(directory, endpoint))
		if err == nil {
			go server.Serve(listener) //nolint:errcheck // it ends with Stop
		}
		return err
	}); err != nil {
		return Got{}, err
	}
	if got, err := p.registerOn(ctx, node, directory, endpoint); err != nil || got.Outcome != "" {
		return got, err
	}
	name := corev1.ResourceName("attack.example/" + p.resource())
	what := fmt.Sprintf("node %s to count %s", p.node(node).Name, name)
	if err := await.Until(ctx, what, func(ctx context.Context) (bool, error) {
		now, err := p.admin.CoreV1().Nodes().Get(ctx, p.node(node).Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		counted := now.Status.Allocatable[name]
		return !counted.IsZero() && (directory == atKubelet || names(now, name)), nil
	}); err != nil {
		return Got{}, err
	}
	tenant, err := p.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	pod := tolerant(clustertest.On(p.node(node).Name, p.pod("annotated", 0)))
	pod.Spec.Containers[0].Resources = clustertest.Limits(map[corev1.ResourceName]int64{name: 1})
	got, err := p.runs(ctx, tenant, pod)
	if err != nil || got.Outcome != Succeeds {
		return got, err
	}
	encoded, err := p.annotationOf(ctx, node, pod.Name, key)
	if err != nil || encoded == "" {
		return Got{NoEffect, "the container does not have the annotation"}, err
	}
	return Got{Succeeds, fmt.Sprintf("the container has %d bytes of it", len(encoded))}, nil
}

// names reports whether a node names the device d of a resource, which kubecri counts before that.
func names(node *corev1.Node, resource corev1.ResourceName) bool {
	name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: types.ResourceName(resource), ID: "d"})
	if err != nil {
		return false
	}
	inventory, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
	return err == nil && inventory.Allocatable[name] > 0
}

// annotationOf returns an annotation that the first container of a pod has in the runtime.
func (s *Stage) annotationOf(ctx context.Context, node int, name, key string) (string, error) {
	pod, err := s.admin.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if !kube.Ready(pod) {
		return "", fmt.Errorf("pod %s is not ready any more", name)
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	printed, err := s.node(node).Run(ctx, "crictl", "inspect", id)
	if err != nil {
		return "", err
	}
	var inspected struct {
		Status struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"status"`
	}
	err = json.Unmarshal([]byte(printed), &inspected)
	return inspected.Status.Annotations[key], err
}

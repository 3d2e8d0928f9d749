// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
)

func TestAnExporterSeesTheDevicesOfKubecrisAndOfTheKubeletsPlugins(t *testing.T) {
	n := nodes[0]
	ctx := begin(t, n)
	namespace := clustertest.Namespace(t, shared.Client)
	run := func(name string, requested request, sidecars ...corev1.Container) *corev1.Pod {
		pod := clustertest.On(n.Name, clustertest.IdlePod(namespace, name, requested))
		pod.Spec.InitContainers = sidecars
		pod.Spec.Containers[0].Command = []string{"sh", "-c", "echo $FPGA; " + clustertest.Idle[2]}
		return clustertest.RunPod(ctx, t, shared.Client, pod)
	}
	all := run("all", request{gpu: 2, nic: 1, fpga: 1})
	wide := run("wide", request{nic: n.count(nic, (*device).isHealthy) - 2}, corev1.Container{
		Name: "sidecar", Image: image.Busybox, Command: clustertest.Idle,
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Resources:     clustertest.Limits(request{gpu: 1, nic: 1}),
	})
	run("none", nil)
	agent := clustertest.NewAgent(t, n.Node, clustertest.KubecriPodResources)
	want := map[string][]string{
		"all/main":     append(n.entries(n.allocated(t, all, "main")), string(fpga)+" "+n.printed(ctx, t, all)+" on 0"),
		"wide/main":    n.entries(n.allocated(t, wide, "main")),
		"wide/sidecar": n.entries(n.allocated(t, wide, "sidecar")),
	}
	slices.Sort(want["all/main"])

	listed, got := list(ctx, t, agent, namespace)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-allocated +reported):\n%s", diff)
	}
	one, err := agent.Get(ctx, &podresourcesapi.GetPodResourcesRequest{PodNamespace: namespace, PodName: all.Name})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(listed[all.Name], one.GetPodResources(), protocmp.Transform()); diff != "" {
		t.Errorf("pod %s (-List +Get):\n%s", all.Name, diff)
	}

	unhealthy := n.allocated(t, all, "main")[0]
	n.setHealth(t, func(d *device) bool { return d != unhealthy })
	n.awaitDevices(ctx, t)
	var healthy []*device
	for _, d := range n.devices {
		if d.healthy {
			healthy = append(healthy, d)
		}
	}
	node, err := agent.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n.entries(healthy), entries(node.GetDevices())); diff != "" {
		t.Errorf("GetAllocatableResources (-healthy +reported):\n%s", diff)
	}
	if _, got := list(ctx, t, agent, namespace); !cmp.Equal(want, got) {
		t.Errorf("when %s is unhealthy, List has %v, want still %v", unhealthy.id, got, want)
	}

	clustertest.DeletePod(ctx, t, shared.Client, all)
	delete(want, "all/main")
	clustertest.AwaitSuccess(ctx, t, "pod "+all.Name+" to be listed no more", func() error {
		_, got := list(ctx, t, agent, namespace)
		if !cmp.Equal(want, got) {
			return fmt.Errorf("listed are %v", got)
		}
		return nil
	})
}

// list requests the pods of a namespace, by name, and which devices their containers have,
// by pod/container.
func list(ctx context.Context, t *testing.T, agent podresourcesapi.PodResourcesListerClient,
	namespace string) (map[string]*podresourcesapi.PodResources, map[string][]string) {
	t.Helper()
	answer, err := agent.List(ctx, &podresourcesapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	pods, devices := map[string]*podresourcesapi.PodResources{}, map[string][]string{}
	for _, pod := range answer.GetPodResources() {
		if pod.GetNamespace() != namespace {
			continue
		}
		pods[pod.GetName()] = pod
		for _, container := range pod.GetContainers() {
			if reported := entries(container.GetDevices()); len(reported) > 0 {
				devices[pod.GetName()+"/"+container.GetName()] = reported
			}
		}
	}
	return pods, devices
}

// entries formats what the API reports about devices, sorted: resource, ID and NUMA nodes of each.
func entries(reported []*podresourcesapi.ContainerDevices) []string {
	var texts []string
	for _, entry := range reported {
		for _, id := range entry.GetDeviceIds() {
			text := entry.GetResourceName() + " " + id
			for _, numa := range entry.GetTopology().GetNodes() {
				text += fmt.Sprint(" on ", numa.GetID())
			}
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return texts
}

// entries formats what the API should report about devices. It reports a device on two NUMA nodes
// twice.
func (n *node) entries(devices []*device) []string {
	var texts []string
	for _, d := range devices {
		text := string(d.resource) + " " + d.id
		for _, numa := range d.numa {
			texts = append(texts, fmt.Sprint(text, " on ", numa))
		}
		if len(d.numa) == 0 {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return texts
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/test/await"
)

// settle is how long a behaviour waits for what it expects before it says what is there instead.
const settle = 30 * time.Second

// offered waits until just these devices of the behaviour's resource are offered, each with its
// NUMA nodes behind @, and returns those that are.
func (s *side) offered(want ...string) string {
	slices.Sort(want)
	text := strings.Join(want, " ")
	got := ""
	ctx, cancel := context.WithTimeout(s.ctx, settle)
	defer cancel()
	// The caller compares what is offered in the end.
	_ = await.Until(ctx, text, func(context.Context) (bool, error) {
		got = s.now()
		return got == text, nil
	})
	return got
}

// stays is offered for a state that is expected to last.
func (s *side) stays(want ...string) string {
	s.offered(want...)
	time.Sleep(2 * time.Second)
	return s.now()
}

// left waits until the kubelet of the node offers no device of the behaviour's resource.
func (s *side) left() error {
	ctx, cancel := context.WithTimeout(s.ctx, settle)
	defer cancel()
	return await.Success(ctx, "the kubelet to offer none", func(context.Context) error {
		if offered := s.offeredBy(s.kubelet); offered != "" {
			return fmt.Errorf("it offers %q still", offered)
		}
		return nil
	})
}

// now returns the devices that are offered.
func (s *side) now() string { return s.offeredBy(s.agent) }

// offeredBy returns the devices of the behaviour's resource that an agent lists.
func (s *side) offeredBy(agent podresourcesapi.PodResourcesListerClient) string {
	answer, err := agent.GetAllocatableResources(s.ctx, &podresourcesapi.AllocatableResourcesRequest{},
		grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return err.Error()
	}
	var devices []string
	for _, d := range answer.GetDevices() {
		if d.GetResourceName() != string(s.resource) {
			continue
		}
		var nodes []int
		for _, n := range d.GetTopology().GetNodes() {
			nodes = append(nodes, int(n.GetID()))
		}
		for _, id := range d.GetDeviceIds() {
			devices = append(devices, idWithNUMA(id, nodes))
		}
	}
	slices.Sort(devices)
	return strings.Join(slices.Compact(devices), " ")
}

// listed returns the devices of a pod that has a sandbox and no container.
func (s *side) listed() (string, error) {
	pod := s.pod("", s.some(1))
	pod.Spec.Containers[0].Image = "diff.example/none"
	pod.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
	created, err := shared.Client.CreatePod(s.ctx, pod)
	if err != nil {
		return "", err
	}
	if _, err := shared.Client.AwaitPod(s.ctx, created, "to have a sandbox", func(now *corev1.Pod) bool {
		return slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
		})
	}); err != nil {
		return "", err
	}
	answer, err := s.agent.List(s.ctx, &podresourcesapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	var devices []string
	for _, listed := range answer.GetPodResources() {
		if listed.GetNamespace() != created.Namespace || listed.GetName() != created.Name {
			continue
		}
		for _, d := range listed.GetContainers()[0].GetDevices() {
			devices = append(devices, d.GetDeviceIds()...)
		}
	}
	return strings.Join(devices, " "), err
}

// idWithNUMA is the ID of a device with its NUMA nodes behind @, or alone without any.
func idWithNUMA(id string, numa []int) string {
	if len(numa) == 0 {
		return id
	}
	var nodes []string
	for _, node := range slices.Sorted(slices.Values(numa)) {
		nodes = append(nodes, fmt.Sprint(node))
	}
	return id + "@" + strings.Join(nodes, ",")
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// bounds are attempts to keep the scheduler busy with one pod. Without the defence, which has no
// switch, the same pod is within the bound, and is scheduled: nothing else was wrong with it.
func bounds() []*Attempt {
	var attempts []*Attempt
	for _, bound := range []struct {
		id, what, refusal, how string
		// shape gives the pod so much of what is bounded.
		shape         func(pod *corev1.Pod, much int)
		beyond, still int
	}{
		{
			id: "bounds-containers", what: "requests devices in 65 containers", refusal: "containers",
			how:    "60 containers",
			beyond: 65, still: 60, shape: func(pod *corev1.Pod, much int) { requestMemory(pod, much, 1) },
		},
		{
			id: "bounds-bytes", what: "waits with an annotation of 160 KiB, which is read again and again",
			refusal: "bytes", how: "an annotation of 10 KiB", beyond: 160 << 10, still: 10 << 10,
			shape: func(pod *corev1.Pod, much int) {
				requestMemory(pod, 1, 1)
				text := pod.Annotations[deviceinfo.Annotation]
				pod.Annotations[deviceinfo.Annotation] = `{"x":"` + strings.Repeat("x", much) + `",` + text[1:]
			},
		},
		{
			id: "bounds-idle-containers", what: "has 300 containers, of which one requests a device",
			refusal: "containers",
			how:     "100 containers", beyond: 300, still: 100, shape: func(pod *corev1.Pod, much int) {
				requestMemory(pod, 1, 1)
				for i := range much {
					pod.Spec.Containers = append(pod.Spec.Containers, idleContainer(fmt.Sprintf("idle-%d", i)))
				}
			},
		},
		{
			id: "bounds-name", what: "requests a device by a name of 2 KiB", refusal: "long",
			how:    "a name of 100 bytes",
			beyond: 2048, still: 100, shape: func(pod *corev1.Pod, much int) {
				pod.Annotations = map[string]string{deviceinfo.Annotation: forMain(
					`"gpu/` + strings.Repeat("a", much) + `/memory":1`)}
			},
		},
	} {
		try := func(much int) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				pod := clustertest.On(s.node(scheduled).Name, s.pod("large", 0))
				pod.Spec.Containers[0] = idleContainer("main")
				bound.shape(pod, much)
				return s.schedules(ctx, tenant, pod)
			}
		}
		attempts = append(attempts, &Attempt{
			ID: bound.id, Who: Tenant, What: bound.what, Defence: Bounds, Try: try(bound.beyond),
			Want: everywhere(RefusedByScheduler, bound.refusal), Off: Off{How: bound.how, Try: try(bound.still)},
		})
	}
	padded := func(bytes int) Try {
		return func(ctx context.Context, s *Stage) (Got, error) {
			tenant, err := s.tenant(ctx)
			if err != nil {
				return Got{}, err
			}
			pod := clustertest.On(s.node(scheduled).Name, s.pod("padded", 0))
			pod.Spec.NodeName = s.node(scheduled).Name
			pod.Annotations = map[string]string{
				deviceinfo.Annotation: `{"x":"` + strings.Repeat("x", bytes) + `"}`,
			}
			return s.runs(ctx, tenant, pod)
		}
	}
	return append(attempts, &Attempt{
		ID: "bounds-node-bytes", Who: Tenant, Defence: Bounds, Modes: Modes(), Try: padded(228 << 10),
		What: "names the node of a pod with an annotation of 228 KiB, which the node reads again and again",
		Want: everywhere(RefusedByNode, "has no allocation, and the scheduler reads requests in"),
		Off:  Off{How: "an annotation of 10 KiB", Try: padded(10 << 10)},
	})
}

// idleContainer returns a container that never starts.
func idleContainer(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "localhost/none:1"}
}

// requestMemory makes so many containers of a pod request a byte of the memory of so many GPUs,
// which may be the same.
func requestMemory(pod *corev1.Pod, containers, requests int) {
	var texts []string
	for i := range containers {
		name := "main"
		if i > 0 {
			name = fmt.Sprintf("c%d", i)
			pod.Spec.Containers = append(pod.Spec.Containers, idleContainer(name))
		}
		var each []string
		for k := range requests {
			each = append(each, fmt.Sprintf(`"gpu/%d/memory":1`, k))
		}
		texts = append(texts, fmt.Sprintf(`%q:{"requests":{%s}}`, name, strings.Join(each, ",")))
	}
	pod.Annotations = map[string]string{
		deviceinfo.Annotation: `{"runningcontainer":{` + strings.Join(texts, ",") + `}}`,
	}
}

// schedules creates a pod as client. It succeeds if the scheduler binds the pod.
func (s *Stage) schedules(ctx context.Context, client *kube.Client, pod *corev1.Pod) (Got, error) {
	pod.Namespace = s.namespace
	created, err := client.CreatePod(ctx, pod)
	if err != nil {
		return Got{}, err
	}
	return s.isScheduled(ctx, created)
}

// isScheduled returns whether the scheduler binds a pod: then the attempt succeeds.
func (s *Stage) isScheduled(ctx context.Context, created *corev1.Pod) (Got, error) {
	now, err := s.admin.AwaitPod(ctx, created, "to be scheduled or not", func(now *corev1.Pod) bool {
		return kube.Scheduled(now) || kube.Unschedulable(now)
	})
	if err != nil {
		return Got{}, err
	}
	if kube.Scheduled(now) {
		return Got{Succeeds, "the scheduler has bound the pod"}, nil
	}
	return stateOf(now), nil
}

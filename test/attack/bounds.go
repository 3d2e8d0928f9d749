// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
)

// idleContainer returns a container that never starts.
func idleContainer(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "localhost/none:1"}
}

// createPodOfMany creates the attempt's pod with so many more containers like its first one. Where
// they request something, the first one does, too.
func createPodOfMany(ctx context.Context, p *trial, arguments struct {
	More     string `json:"more"`
	Name     string `json:"name"`
	Requests string `json:"requests"`
}) (Got, error) {
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	pod, err := p.manifest()
	if err != nil {
		return Got{}, err
	}
	more, err := strconv.Atoi(arguments.More)
	if err != nil {
		return Got{}, err
	}
	for i := range more {
		container := pod.Spec.Containers[0]
		container.Name = fmt.Sprintf(arguments.Name, i+1)
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	if arguments.Requests != "" {
		var texts []string
		for _, container := range pod.Spec.Containers {
			texts = append(texts, fmt.Sprintf(`%q:{"requests":{%s}}`, container.Name, arguments.Requests))
		}
		pod.Annotations = map[string]string{
			deviceinfo.Annotation: `{"runningcontainer":{` + strings.Join(texts, ",") + `}}`,
		}
	}
	p.created, err = client.CreatePod(ctx, pod)
	return Got{}, err
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

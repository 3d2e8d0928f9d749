// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

var (
	writtenPods = flag.Int("written.pods", 200, "random pods whose requests are compared with what they get")
	writtenSeed = flag.Uint64("written.seed", 1, "seed of the random pods")
)

// For all that a user writes, the containers get exactly that, or an event names what is missing.
// The test reads the requests by itself: see writtenPod.
func TestWhatIsWrittenIsAllocatedOrNamed(t *testing.T) {
	c := newCluster(t)
	var fours []gpu.GPU
	for i := range 8 {
		fours = append(fours, gpu.GPU{ID: fmt.Sprint("gpu-", i), Memory: 80 << 30, Groups: []int{i / 4, 0}})
	}
	c.nodeOf("n1", fours...)
	startSchedulerWith(t, []string{noQuota})
	r := rand.New(rand.NewPCG(*writtenSeed, 0))
	bound, refused, mistaken := 0, 0, 0
	for i := range *writtenPods {
		pod := randomPod(r, fmt.Sprint("p", i))
		text, _ := json.Marshal(map[string]any{"annotation": pod.Annotations, "init": pod.Spec.InitContainers,
			"containers": pod.Spec.Containers})
		read := readWritten(t, pod)
		pod = c.await(c.create(pod), "to be bound or refused", func(pod *corev1.Pod) bool {
			return kube.Scheduled(pod) || kube.Unschedulable(pod)
		})
		switch {
		case kube.Scheduled(pod):
			bound++
			for _, problem := range read.differences(pod) {
				t.Errorf("pod %d is bound, and %s\n%s", i, problem, text)
			}
		default:
			refused++
			why, missing := c.whyNotScheduled(pod), read.missing()
			if !slices.ContainsFunc(missing, func(word string) bool { return strings.Contains(why, word) }) {
				t.Errorf("pod %d waits, and its event names none of %q: %s\n%s", i, missing, why, text)
			}
		}
		if read.malformed == "" {
			for _, word := range read.mistakes {
				mistaken++
				c.awaitMistake(pod, word)
			}
		}
		c.delete(pod)
	}
	t.Logf("%d pods were bound, %d refused; %d mistakes were events", bound, refused, mistaken)
	if bound < *writtenPods/5 || refused < *writtenPods/5 || mistaken < *writtenPods/10 {
		t.Error("the pods are not varied enough")
	}
}

// awaitMistake waits for an event on the pod that names a word.
func (c *cluster) awaitMistake(pod *corev1.Pod, word string) {
	c.Helper()
	what := fmt.Sprintf("an event that names %s of pod %s, which has %s", word, pod.Name, pod.Annotations)
	c.until(what, func(ctx context.Context) (bool, error) {
		messages, err := c.messages(ctx, pod, "RequestMistake")
		return slices.ContainsFunc(messages, func(message string) bool { return strings.Contains(message, word) }), err
	})
}

// whyNotScheduled waits for the scheduler's event on a pod that waits, and returns what it says.
func (c *cluster) whyNotScheduled(pod *corev1.Pod) (said string) {
	c.Helper()
	c.until("the scheduler's event on pod "+pod.Name, func(ctx context.Context) (bool, error) {
		messages, err := c.messages(ctx, pod, "FailedScheduling")
		said = strings.Join(messages, "\n")
		return len(messages) > 0, err
	})
	return said
}

// messages returns what the events on a pod with this reason say.
func (c *cluster) messages(ctx context.Context, pod *corev1.Pod, reason string) (messages []string, err error) {
	list, err := c.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(pod.UID),
	})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		messages = append(messages, list.Items[i].Message)
	}
	return messages, nil
}

// randomPod returns a pod of up to three containers of all kinds.
func randomPod(r *rand.Rand, name string) *corev1.Pod {
	pod := newPod(name, 0)
	pod.Spec.Containers = nil
	lists := map[string]map[string]any{"initcontainer": {}, "runningcontainer": {}}
	for i := range 1 + r.IntN(3) {
		container := corev1.Container{Name: fmt.Sprint("c", i), Image: "busybox"}
		if limit := r.IntN(4); limit > 0 {
			container.Resources.Limits = corev1.ResourceList{
				corev1.ResourceName(gpu.Resource): *resource.NewQuantity(int64(limit), resource.DecimalSI)}
		}
		list := "runningcontainer"
		switch kind := r.IntN(5); {
		case i == 0 || kind > 1:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		case kind == 1:
			container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		default:
			list = "initcontainer"
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		}
		if r.IntN(4) > 0 {
			lists[list][container.Name] = randomContainer(r)
		}
	}
	annotation := map[string]any{}
	for list, containers := range lists {
		if len(containers) > 0 {
			annotation[list] = containers
		}
	}
	switch r.IntN(16) {
	case 0:
		annotation["runningcontainers"] = map[string]any{}
	case 1:
		annotation["policy"] = "spread"
	case 2:
		annotation["requests"] = map[string]any{"gpu/gpu-generate-topologie": 0}
	case 3:
		annotation["requests"] = map[string]any{"gpu/a/cards": 1}
	case 4:
		annotation["requests"] = map[string]any{"gpu/gpu-generate-topology": 0}
	}
	if len(annotation) > 0 {
		text, _ := json.Marshal(annotation)
		pod.Annotations = map[string]string{deviceinfo.Annotation: string(text)}
	}
	return pod
}

// randomContainer returns what a container has in the annotation.
func randomContainer(r *rand.Rand) map[string]any {
	forms := []map[string]any{
		{"gpu/a/cards": 1},
		{"gpugrp0/A/gpu/a/cards": 1, "gpugrp0/A/gpu/b/cards": 1},
		{"gpugrp0/!A/gpu/a/cards": 1, "gpugrp0/!B/gpu/a/cards": 1},
		{"gpu/m/memory": "20Gi"},
		{"gpu/!m/memory": "512Mi", "gpu/!n/memory": 1 << 30},
		{"resource/group/gpu/x/cards": 1, "resource/group/gpu/x/memory": 1 << 30},
		{"nvidia.com/gpu": 2},
		{"gpu/gpu-generate-topology": 0},
	}
	wrong := []map[string]any{
		{"fpga/a/region": 1}, {"vendor.example/fpga": 1}, {"numa/A/nvidia.com/gpu": 2}, {"gpugrp0/A/gpu/a": 1},
		{"gpu/gpu-generate-topologie": 0}, {"gpu/s/memory": 20480}, {"gpu/q/memory": "20GB"}, {"nvidia.com/gpus": 1},
		{"gpu/=gpu-0/cards": 1}, {"gpu/gpu-generate-topology": 2}, {"nvidia.com/gpu": 0}, {"gpu/z/cards": 0},
		{"smarter-devices/video0": 1},
	}
	requests := map[string]any{}
	for range r.IntN(3) {
		maps.Copy(requests, forms[r.IntN(len(forms))])
	}
	if r.IntN(3) == 0 {
		maps.Copy(requests, wrong[r.IntN(len(wrong))])
	}
	container := map[string]any{"requests": requests}
	if r.IntN(12) == 0 {
		container["request"] = map[string]any{"gpu/a/cards": 1}
	}
	return container
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	kubectl "github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// scheduler is the user that may write allocations.
const scheduler = "system:kube-scheduler"

// absentScheduler is the name of a scheduler that doesn't run: pods that name it wait until a test
// binds them.
const absentScheduler = "absent"

// cardOf returns the resource of the GPU with that number, as the inventory of this package's nodes
// has it.
func cardOf(number int) types.ResourceName {
	return types.ResourceName(fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/gpu-%d/cards", number/4,
		number/2, number))
}

// allocation returns the annotation that gives the container main of a pod one GPU.
func allocation(t *testing.T, pod, node string, card types.ResourceName) string {
	t.Helper()
	const request types.ResourceName = "resource/group/gpugrp1/A/gpugrp0/B/gpu/0/cards"
	value, err := deviceinfo.EncodePod(&types.PodInfo{
		Name: pod, NodeName: node,
		RunningContainers: map[string]types.ContainerInfo{"main": {
			DevRequests:  types.ResourceList{request: 1},
			AllocateFrom: types.ResourceLocation{request: card},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// bind binds a pod as a scheduler does that has no key, with an annotation unless it is empty.
func bind(ctx context.Context, client *kube.Client, pod *corev1.Pod, node, annotation string) error {
	annotations := map[string]string{}
	if annotation != "" {
		annotations[deviceinfo.Annotation] = annotation
	}
	return bindWith(ctx, client, pod, node, annotations)
}

// bindWith binds a pod with these annotations.
func bindWith(ctx context.Context, client *kube.Client, pod *corev1.Pod, node string,
	annotations map[string]string) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: annotations},
		Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}
	return client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// bindAsScheduler creates a pod that no scheduler sees, and binds it as ours would, if it went
// wrong: with a seal.
func bindAsScheduler(ctx context.Context, t *testing.T, pod *corev1.Pod, node, annotation string) *corev1.Pod {
	t.Helper()
	client, err := shared.Client.As(scheduler)
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.SchedulerName = absentScheduler
	pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
	text, err := shared.Seal(pod, node, annotation)
	if err != nil {
		t.Fatal(err)
	}
	err = bindWith(ctx, client, pod, node,
		map[string]string{deviceinfo.Annotation: annotation, seal.Annotation: text})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestADevicePodWithoutAValidAllocationIsRefusedWithAReason(t *testing.T) {
	here, there := shared.Nodes[0].Name, shared.Nodes[1].Name
	const (
		again   = "delete the pod to have it scheduled again"
		notOurs = "the device scheduler did not bind the pod; create it again"
	)
	tests := map[string]struct {
		make func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod
		want []string
	}{
		"it chose its node itself": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				pod := gpuPod(namespace, "own-node", 1)
				pod.Spec.NodeName = here
				return clustertest.CreatePod(ctx, t, shared.Client, pod)
			},
			want: []string{`pod "own-node"`, "no annotation " + deviceinfo.Annotation, notOurs},
		},
		"it chose its node itself and wrote a request": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				pod := gpuPod(namespace, "own-node-and-request", 0)
				pod.Spec.NodeName = here
				kube.SetRequests(pod, `"resource/group/gpu/0/cards":1`)
				return clustertest.CreatePod(ctx, t, shared.Client, pod)
			},
			want: []string{`pod "own-node-and-request"`, "names no node", notOurs},
		},
		"a scheduler bound it that knows no devices": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				pod := clustertest.On(here, gpuPod(namespace, "upstream", 1))
				pod.Spec.SchedulerName = startUpstreamScheduler(ctx, t)
				return clustertest.CreatePod(ctx, t, shared.Client, pod)
			},
			want: []string{`pod "upstream"`, "no annotation " + deviceinfo.Annotation, notOurs},
		},
		"its allocation is for another node": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				return bindAsScheduler(ctx, t, gpuPod(namespace, "elsewhere", 1), here,
					allocation(t, "elsewhere", there, cardOf(0)))
			},
			want: []string{`pod "elsewhere"`, there, here, again},
		},
		"its allocation is another pod's": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				return bindAsScheduler(ctx, t, gpuPod(namespace, "copied", 1), here,
					allocation(t, "original", here, cardOf(0)))
			},
			want: []string{`pod "copied"`, `"original"`, again},
		},
		"its device is not there": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				return bindAsScheduler(ctx, t, gpuPod(namespace, "gone", 1), here,
					allocation(t, "gone", here, cardOf(99)))
			},
			want: []string{string(cardOf(99)), `node "` + here + `"`, again},
		},
		"it was bound with an allocation and no seal": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				client, err := shared.Client.As(scheduler)
				if err != nil {
					t.Fatal(err)
				}
				pod := gpuPod(namespace, "no-key", 1)
				pod.Spec.SchedulerName = absentScheduler
				pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
				if err := bind(ctx, client, pod, here, allocation(t, "no-key", here, cardOf(0))); err != nil {
					t.Fatal(err)
				}
				return pod
			},
			want: []string{`/no-key"`, "the allocation has no seal", "delete the pod and create it again"},
		},
		"it was forged where no policy forbids that": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				card := cardOf(0)
				withoutPolicies(ctx, t, &forgery{forger: shared.Client, namespace: namespace, node: here, card: card})
				pod := gpuPod(namespace, "forged", 1)
				pod.Spec.NodeName = here
				pod.Annotations = map[string]string{deviceinfo.Annotation: allocation(t, "forged", here, card)}
				return clustertest.CreatePod(ctx, t, shared.Client, pod)
			},
			want: []string{`/forged"`, "the allocation has no seal", "delete the pod and create it again"},
		},
		"its device is another pod's": {
			make: func(ctx context.Context, t *testing.T, namespace string) *corev1.Pod {
				holder := clustertest.RunPod(ctx, t, shared.Client,
					clustertest.On(here, gpuPod(namespace, "holder", 1)))
				seen := inspect(ctx, t, holder, "main")
				card := types.ResourceName(seen.Paths[0])
				return bindAsScheduler(ctx, t, gpuPod(namespace, "late", 1), here, allocation(t, "late", here, card))
			},
			want: []string{"gpu/gpu-", "/holder", "works when they are gone"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			pod := test.make(ctx, t, clustertest.Namespace(t, shared.Client))
			expectRefused(ctx, t, pod, test.want)
			expectShownAsRefused(ctx, t, pod, "CreateContainerError", test.want)
		})
	}
}

func TestAPodThatTheKubeletRejectsIsShownWithTheKubeletsReason(t *testing.T) {
	ctx := begin(t)
	pod := gpuPod(clustertest.Namespace(t, shared.Client), "too-many", perNode+1)
	pod.Spec.NodeName = shared.Nodes[0].Name
	pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
	clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be rejected", func(now *corev1.Pod) bool {
		return now.Status.Phase == corev1.PodFailed
	})
	reason := "OutOf" + string(observe.Resource)
	expectShownAsRefused(ctx, t, pod, reason, []string{"Pod was rejected: "})
}

// expectShownAsRefused fails the test unless kubectl device pods has a pod as refused by its node,
// and kubectl device why fails and names the node, both with the node's reason and all of why.
func expectShownAsRefused(ctx context.Context, t *testing.T, pod *corev1.Pod, reason string, why []string) {
	t.Helper()
	k := newKubectlDevice(ctx, t)
	var shown kubectl.Pod
	k.read(&shown, "pods", pod.Name, "--namespace="+pod.Namespace)
	if shown.State != kubectl.Refused {
		t.Errorf("kubectl device pods does not have the pod as refused: %+v", shown)
	}
	said, stderr, status := k.run("why", pod.Name, "--namespace="+pod.Namespace)
	if status != 1 || !strings.Contains(said, "bound to node "+shown.Node+", which refuses it") {
		t.Errorf("kubectl device why ends with %d and says %s%s", status, said, stderr)
	}
	for command, text := range map[string]string{"pods": shown.Message, "why": said} {
		for _, part := range append([]string{reason}, why...) {
			if !strings.Contains(text, part) {
				t.Errorf("kubectl device %s does not say %q: %s", command, part, text)
			}
		}
	}
}

// expectRefused fails the test unless the pod's container is not created, and the pod's status and
// an event of kubecri both say all of why.
func expectRefused(ctx context.Context, t *testing.T, pod *corev1.Pod, why []string) {
	t.Helper()
	refused := fmt.Sprintf("to be refused with %q", why)
	clustertest.AwaitPod(ctx, t, shared.Client, pod, refused, func(now *corev1.Pod) (said bool) {
		for _, status := range now.Status.ContainerStatuses {
			waiting := status.State.Waiting
			if waiting != nil && waiting.Reason == "CreateContainerError" && hasAll(waiting.Message, why) {
				said = true
			}
		}
		return said
	})
	awaitRefusalEvent(ctx, t, pod, why...)
}

// hasAll reports whether a text has all of these parts.
func hasAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// awaitRefusalEvent waits for a warning of kubecri's about a pod that says all of why. One before
// it may be of what is over when the kubelet tries again.
func awaitRefusalEvent(ctx context.Context, t *testing.T, pod *corev1.Pod, why ...string) {
	t.Helper()
	clustertest.Await(ctx, t, fmt.Sprintf("kubecri's event on pod %s with %q", pod.Name, why), func() bool {
		events, err := shared.Client.PodEvents(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			if event.Source.Component == "kubecri" && event.Type == corev1.EventTypeWarning &&
				event.Reason == "DevicesRefused" && hasAll(event.Message, why) {
				return true
			}
		}
		return false
	})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// requesting is a container as the API server stores it, with limits copied to requests.
func requesting(name, quantity string) corev1.Container {
	container := requestingContainer(name, gpu, quantity)
	container.Resources.Requests = container.Resources.Limits
	return container
}

func TestCountsPodsLikeTheKubelet(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := requesting("side", "1")
	sidecar.RestartPolicy = &always
	for name, test := range map[string]struct {
		initial, running []corev1.Container
		want             map[string]int64
	}{
		"one that requests no device": {nil, []corev1.Container{requesting("main", "0")}, nil},
		"containers that run together": {
			nil, []corev1.Container{requesting("main", "2"), requesting("more", "1")}, map[string]int64{gpu: 3},
		},
		"an init container that requests less": {
			[]corev1.Container{requesting("init", "1")}, []corev1.Container{requesting("main", "2")},
			map[string]int64{gpu: 2},
		},
		"an init container that requests more": {
			[]corev1.Container{requesting("init", "4")}, []corev1.Container{requesting("main", "2")},
			map[string]int64{gpu: 4},
		},
		"a sidecar": {
			[]corev1.Container{sidecar}, []corev1.Container{requesting("main", "2")}, map[string]int64{gpu: 3},
		},
		"an init container that runs along with one": {
			[]corev1.Container{sidecar, requesting("init", "4")}, []corev1.Container{requesting("main", "2")},
			map[string]int64{gpu: 5},
		},
	} {
		pod := podOf("u", test.running...)
		pod.Spec.InitContainers = test.initial
		stripped, err := strip(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, summarize(stripped.(*corev1.Pod)).Counts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCountsOnlyPodsThatHaveNotEnded(t *testing.T) {
	client := fake.NewClientset(podOf("a", requesting("main", "1")), podOf("b", requesting("main", "2")))
	r := NewRegistry(0)
	if counts, known, _ := r.Counts(); known || len(counts) > 0 {
		t.Errorf("before the API server has listed the pods: %v, known=%v", counts, known)
	}
	keepWatching(t, r, client)
	await := func(what string, want int64) {
		t.Helper()
		await(t, r, what, func() bool {
			counts, known, _ := r.Counts()
			return known && counts[gpu] == want
		})
	}
	await("both pods", 3)

	ended := podOf("a", requesting("main", "1"))
	ended.Status.Phase = corev1.PodSucceeded
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("one that has succeeded", 2)
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "pod-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("one that is deleted", 0)
}

func TestReportsOnlyChangedCounts(t *testing.T) {
	r := NewRegistry(0)
	reported := func(change func()) bool {
		_, _, changed := r.Counts()
		change()
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	for _, test := range []struct {
		what   string
		change func()
		want   bool
	}{
		{"a pod without devices", func() { r.set("a", summarize(podOf("a"))) }, false},
		{"a pod with devices", func() { r.set("b", summarize(podOf("b", requesting("main", "1")))) }, true},
		{"the same pod again", func() { r.set("b", summarize(podOf("b", requesting("main", "1")))) }, false},
		{"the API server has listed them", func() { r.keepOnly(map[string]bool{"a": true, "b": true}) }, true},
		{"the pod with devices is deleted", func() { r.remove("b") }, true},
	} {
		if got := reported(test.change); got != test.want {
			t.Errorf("%s: reported=%v, want %v", test.what, got, test.want)
		}
	}
}

func TestCountsStopAtTheLargestNumber(t *testing.T) {
	r := NewRegistry(0)
	for _, uid := range []string{"a", "b"} {
		pod := podOf(uid, corev1.Container{Name: "main"})
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			gpu: *resource.NewQuantity(math.MaxInt64, resource.DecimalSI),
		}
		r.set(uid, summarize(pod))
	}
	if counts, _, _ := r.Counts(); counts[gpu] != math.MaxInt64 {
		t.Errorf("counted %d", counts[gpu])
	}
}

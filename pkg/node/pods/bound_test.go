// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

func TestBoundToListsKnownContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := podOf("u", corev1.Container{Name: "main"})
	pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always}, {Name: "first"}}
	want := deviceinfo.BoundPod{
		Name: "pod-u", NodeName: "node-1", InitContainers: []string{"first"}, RunningContainers: []string{
			"side", "main",
		},
	}
	if diff := cmp.Diff(want, summarize(pod).BoundTo("node-1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"side", "first"}, summarize(pod).InitOrder()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPodWaitsUntilItsGrantOrItsEnd(t *testing.T) {
	ended := podOf("ended", requestingContainer("main", gpu, "1"))
	ended.Status.Phase = corev1.PodFailed
	sealed := podOf("sealed", corev1.Container{Name: "main"})
	sealed.Annotations = map[string]string{seal.Annotation: "x", deviceinfo.Annotation: "{}"}
	annotated := podOf("annotated", corev1.Container{Name: "main"})
	annotated.Annotations = map[string]string{deviceinfo.Annotation: "{}"}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"it requests a device":          {podOf("asks", requestingContainer("main", gpu, "1")), true},
		"an allocation was made for it": {sealed, true},
		"it was granted its devices":    {podOf("granted", requestingContainer("main", gpu, "1")), false},
		"it has requests and no seal":   {annotated, false},
		"it has ended":                  {ended, false},
		"it requests another resource": {
			podOf("other", requestingContainer("main", "example.com/other", "1")), false,
		},
		"the API server has it not any more": {podOf("gone", requestingContainer("main", gpu, "1")), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRegistry(0)
			p := &plugins{names: []sdk.ResourceName{gpu}}
			r.Follow(p)
			granted := func(uid string) bool { return uid == "granted" }
			if !r.Waits(granted) {
				t.Error("no pod waits while the device resources are unknown")
			}
			p.complete = true
			if r.Waits(granted) {
				t.Error("a pod waits on an empty node")
			}
			r.set(string(test.pod.UID), summarize(test.pod))
			if test.pod.UID == "gone" {
				r.remove("gone")
			}
			if r.Waits(granted) != test.want {
				t.Errorf("a pod waits: %t, want %t", !test.want, test.want)
			}
		})
	}
}

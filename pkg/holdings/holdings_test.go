// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package holdings

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const memory types.ResourceName = "resource/group/gpu/a/memory"

// three is a pod with an init container, a sidecar and a regular container.
func three() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{
			NodeName: "n",
			InitContainers: []corev1.Container{
				{Name: "first"}, {Name: "beside", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "main"}},
		},
	}
}

func TestContainersComeInTheOrderInWhichTheyStart(t *testing.T) {
	want := []grouptree.Container{
		{Name: "first", Kind: grouptree.Init}, {Name: "beside", Kind: grouptree.Sidecar},
		{Name: "main", Kind: grouptree.Regular},
	}
	if diff := cmp.Diff(want, Containers(three())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What an init container has is free when the others start, what a sidecar has is not.
func TestWhatANodeReportsIsHeldAsIfItWereAllocated(t *testing.T) {
	reported := map[string]types.ResourceList{}
	for name, quantity := range map[string]int64{"first": 70, "beside": 20, "main": 30, "unknown": 5} {
		reported[name] = types.ResourceList{memory: quantity}
	}
	value, err := deviceinfo.EncodeHolders([]deviceinfo.Holder{
		{UID: "u", Namespace: "default", Name: "p", Containers: reported},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		deviceinfo.HoldersAnnotation: value,
	}}}
	by, err := ReportedBy(node)
	if err != nil || by["u"] == nil {
		t.Fatalf("got %v, %v", by, err)
	}
	pod := three()
	allocation := Reported(by["u"], pod)
	if allocation.Name != "p" || allocation.NodeName != "n" || len(allocation.InitContainers) != 1 {
		t.Errorf("got %+v", allocation)
	}
	if held := grouptree.Holdings(allocation, Containers(pod))[memory]; held != 70 {
		t.Errorf("the pod holds %d, want 70: more than the 55 that run together", held)
	}
}

func TestANodeThatReportsNothingHasNoHolders(t *testing.T) {
	if by, err := ReportedBy(&corev1.Node{}); by != nil || err != nil {
		t.Errorf("got %v, %v", by, err)
	}
	garbled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		deviceinfo.HoldersAnnotation: "{",
	}}}
	if _, err := ReportedBy(garbled); err == nil {
		t.Error("a report that is not JSON is read")
	}
}

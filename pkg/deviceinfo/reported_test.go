// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// What an init container has is free when the others start, what a sidecar has is not.
func TestHoldersThatANodeReportsCountAsAllocated(t *testing.T) {
	const memory types.ResourceName = "resource/group/gpu/a/memory"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{
			NodeName: "n",
			InitContainers: []corev1.Container{
				{Name: "first"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "main"}},
		},
	}
	reported := map[string]types.ResourceList{}
	for name, quantity := range map[string]int64{"first": 70, "sidecar": 20, "main": 30, "unknown": 5} {
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
	holders, err := deviceinfo.HoldersOf(node)
	if err != nil || holders["u"] == nil {
		t.Fatalf("got %v, %v", holders, err)
	}
	allocation := holders["u"].Allocation(pod)
	if allocation.Name != "p" || allocation.NodeName != "n" || len(allocation.InitContainers) != 1 {
		t.Errorf("got %+v", allocation)
	}
	if held := grouptree.Holdings(allocation, request.Containers(pod))[memory]; held != 70 {
		t.Errorf("the pod holds %d, want 70: more than the 55 that run together", held)
	}
}

func TestANodeThatReportsNothingHasNoHolders(t *testing.T) {
	if holders, err := deviceinfo.HoldersOf(&corev1.Node{}); holders != nil || err != nil {
		t.Errorf("got %v, %v", holders, err)
	}
	garbled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		deviceinfo.HoldersAnnotation: "{",
	}}}
	if _, err := deviceinfo.HoldersOf(garbled); err == nil {
		t.Error("a report that is not JSON is read")
	}
}

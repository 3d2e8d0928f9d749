// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
)

func TestContainersComeInTheOrderInWhichTheyStart(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "first"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		},
		Containers: []corev1.Container{{Name: "main"}},
	}}
	want := []grouptree.Container{
		{Name: "first", Kind: grouptree.Init}, {Name: "sidecar", Kind: grouptree.Sidecar},
		{Name: "main", Kind: grouptree.Regular},
	}
	if diff := cmp.Diff(want, Containers(pod)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

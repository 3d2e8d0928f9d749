// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/kube"
)

// Four pods of two GPUs each belong together, while another pod has one of the eight GPUs: none of
// them runs, and what is free can be had by others. When all is free, all four run, and no two see
// the same GPU.
func TestAGroupOfDevicePodsRunsAllOrNothing(t *testing.T) {
	s := begin(t)
	small := s.run(s.pod("small", 1))
	group := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gang"},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 4},
			},
		},
	}
	if _, err := shared.Client.SchedulingV1beta1().PodGroups(s.namespace).Create(s.ctx, group,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gang := make([]*corev1.Pod, 4)
	for i := range gang {
		pod := s.pod(fmt.Sprint("gang-", i), 2)
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group.Name)}
		gang[i] = s.create(pod)
	}
	for _, pod := range gang {
		s.await(pod, "to be found unschedulable", kube.Unschedulable)
	}
	pair := s.run(s.pod("pair", 2))
	for _, pod := range gang {
		s.await(pod, "to be without a node", func(pod *corev1.Pod) bool { return !kube.Scheduled(pod) })
	}
	s.expectDistinct(3, small, pair)

	s.delete(pair)
	s.delete(small)
	for i, pod := range gang {
		gang[i] = s.await(pod, "to be ready", kube.Ready)
	}
	s.expectDistinct(capacity, gang...)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/kube"
)

// The scheduler is killed while pods are on their way, three times over. In the end each pod runs
// with a GPU of its own, and one more has to wait.
func TestASchedulerThatIsKilledGivesNoDeviceTwiceAndLosesNone(t *testing.T) {
	s := begin(t)
	var pods []*corev1.Pod
	for i := range capacity {
		pods = append(pods, s.create(s.pod(fmt.Sprint("pod-", i), 1)))
		if i%3 == 1 {
			if err := shared.Scheduler.Restart(s.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, pod := range pods {
		pods[i] = s.await(pod, "to be ready", kube.Ready)
	}
	s.expectDistinct(capacity, pods...)
	late := s.await(s.create(s.pod("late", 1)), "to be found unschedulable", kube.Unschedulable)
	freed := s.devices(pods[3]).Visible[0]
	s.delete(pods[3])
	if got := s.devices(s.await(late, "to be ready", kube.Ready)).Visible[0]; got != freed {
		t.Errorf("the pod that waited sees %s, want %s, which came free", got, freed)
	}
}

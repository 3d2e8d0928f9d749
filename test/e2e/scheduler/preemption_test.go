// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/kube"
)

// Each GPU is held by a pod of its own, and a disruption budget guards those pods, two that hold a
// pair excepted. A pod of higher priority gets that pair when the two have ended, and no other pod
// is evicted.
func TestAPodOfHighPriorityGetsTheDevicesOfThePairThatCostsLeast(t *testing.T) {
	s := begin(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	if _, err := shared.Client.SchedulingV1().PriorityClasses().Create(s.ctx, class,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.guard()
	var holders []*corev1.Pod
	for i := range capacity {
		holders = append(holders, s.create(s.pod(fmt.Sprint("holder-", i), 1)))
	}
	byGroup := map[string][]string{} // holders by the pair that their GPU belongs to
	deviceOf := map[string]string{}
	for i, pod := range holders {
		holders[i] = s.await(pod, "to be ready", kube.Ready)
		seen := s.devices(holders[i])
		group, _, _ := strings.Cut(seen.Paths[0], "/gpu/")
		byGroup[group] = append(byGroup[group], pod.Name)
		deviceOf[pod.Name] = seen.Visible[0]
	}
	spared := ""
	for group := range byGroup {
		spared = max(spared, group)
	}
	victims := byGroup[spared]
	if len(victims) != 2 {
		t.Fatalf("the pods %q hold the group %s, want two", victims, spared)
	}
	for _, pod := range holders {
		if !slices.Contains(victims, pod.Name) {
			s.label(pod)
		}
	}

	pair := s.pod("pair", 2)
	pair.Spec.PriorityClassName = class.Name
	seen := s.devices(s.run(pair))

	want := []string{deviceOf[victims[0]], deviceOf[victims[1]]}
	slices.Sort(want)
	if diff := cmp.Diff(want, seen.Visible); diff != "" {
		t.Errorf("GPUs of the pod (-those of its victims +seen):\n%s", diff)
	}
	left := s.pods()
	for _, pod := range holders {
		if evicted := slices.Contains(victims, pod.Name); left[pod.Name] == evicted {
			t.Errorf("pod %s is there: %t, a victim: %t", pod.Name, left[pod.Name], evicted)
		}
	}
}

// guarded is the label of pods that must not be disrupted.
const guarded = "guarded"

// guard makes a disruption budget that lets no guarded pod go.
func (s *story) guard() {
	s.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: guarded},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromString("100%")),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{guarded: ""}},
		},
	}
	if _, err := shared.Client.PolicyV1().PodDisruptionBudgets(s.namespace).Create(s.ctx, budget,
		metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// label makes a pod one that the budget guards.
func (s *story) label(pod *corev1.Pod) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, guarded)
	if _, err := shared.Client.CoreV1().Pods(s.namespace).Patch(s.ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

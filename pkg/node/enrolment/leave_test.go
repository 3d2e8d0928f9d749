// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Somebody thinks better of it while pods are evicted, or the connection breaks.
func TestALeaveThatWasCutOffLeavesNoCordon(t *testing.T) {
	for _, mode := range []Mode{ModeCRI, ModeNRI} {
		crashes := 0
		for crashed := true; crashed; crashes++ {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				m.options.Mode = mode
				m.expect(m.enrol(), Done)
				_, crashed = m.until(crashes, leave)
				if report := m.enrol(); report.Leaving {
					m.expect(m.leave(), Done)
					m.expect(m.enrol(), Done)
				}
				m.changeNode(func(node *corev1.Node) {
					if node.Spec.Unschedulable || node.Labels[Label] != "true" {
						t.Errorf("mode %s, crash %d, then enrol: the node is %+v with labels %v", mode, crashes,
							node.Spec, node.Labels)
					}
				})
			})
		}
	}
}

func TestANodeThatWasUncordonedDuringALeaveIsCordonedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		m.addPod("trainer")
		m.granted = []string{"uid-trainer"}
		drain := func(e *Enrolment) *Report { return e.Leave(context.Background(), false, true) }
		m.until(2, drain) // in the eviction
		cordoned := func() (unschedulable bool) {
			m.changeNode(func(node *corev1.Node) { unschedulable = node.Spec.Unschedulable })
			return unschedulable
		}
		if !cordoned() {
			t.Fatal("the first leave has not come as far as to cordon the node")
		}
		m.changeNode(func(node *corev1.Node) { node.Spec.Unschedulable = false })
		m.until(2, drain)
		if !cordoned() {
			t.Error("pods may come while the node is drained")
		}
		m.expect(drain(m.enrolment()), Done)
	})
}

// It would come back as often as it is evicted.
func TestAPodOfADaemonSetIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		m.addPod("exporter")
		m.changePod("exporter", func(pod *corev1.Pod) {
			owner := metav1.OwnerReference{Kind: "DaemonSet", Name: "exporters", Controller: ptr.To(true)}
			pod.OwnerReferences = []metav1.OwnerReference{owner}
		})
		m.granted = []string{"uid-exporter"}
		before := m.snapshot()
		report := m.enrolment().Leave(t.Context(), false, true)
		m.expect(report, Refused)
		if !strings.Contains(report.Reason, "pod default/exporter has devices and is one of DaemonSet exporters") {
			t.Errorf("reason: %s", report.Reason)
		}
		if diff := cmp.Diff(before, m.snapshot()); diff != "" || len(m.evicted) > 0 {
			t.Errorf("evicted: %q; it changes (-before +after):\n%s", m.evicted, diff)
		}
		// The DaemonSet is deleted, and its pod ends.
		m.changePod("exporter", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		time.AfterFunc(time.Minute, func() {
			pods := corev1.SchemeGroupVersion.WithResource("pods")
			if err := m.api.Tracker().Delete(pods, "default", "exporter"); err != nil {
				t.Error(err)
			}
		})
		m.expect(m.enrolment().Leave(t.Context(), false, true), Done)
	})
}

func TestLeaveRefusesWhileDevicePodsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		m.addPod("trainer")
		m.granted = []string{"uid-trainer", "uid-gone"}
		before := m.snapshot()
		report := m.leave()
		m.expect(report, Refused)
		if !strings.Contains(report.Reason, "default/trainer") || !strings.Contains(report.Reason, "--drain") ||
			report.ExitCode() != 2 {
			t.Errorf("report %+v", report)
		}
		if diff := cmp.Diff(before, m.snapshot()); diff != "" {
			t.Errorf("a refused leave changes (-before +after):\n%s", diff)
		}
		m.expect(m.enrolment().Leave(t.Context(), false, true), Done)
		if len(m.evicted) != 1 || m.evicted[0] != "trainer" {
			t.Errorf("evicted: %q", m.evicted)
		}
	})
}

// changeNode changes the node at the API server.
func (m *machine) changeNode(change func(*corev1.Node)) {
	m.t.Helper()
	node, err := m.api.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	change(node)
	if err := m.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
		m.t.Fatal(err)
	}
}

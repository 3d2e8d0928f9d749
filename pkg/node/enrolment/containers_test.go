// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A kubelet that starts fails a pod with a device in a container that does not run.
func TestANodeInUseIsEnrolledWhenAllContainersWithDevicesRun(t *testing.T) {
	for name, arrange := range map[string]func(*machine){
		"a pod holds a device of the kubelet": func(m *machine) {
			m.addPod("trainer")
			m.write("/var/lib/kubelet/checkpoint", held)
		},
		"a pod is about to get one": func(m *machine) {
			m.addPod("trainer", "nvidia.com/gpu")
			m.write("/var/lib/kubelet/checkpoint", strings.ReplaceAll(held, "uid-trainer", "uid-gone"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				m.write("/plugins/a.so", "")
				m.options.OtherDevices = true
				arrange(m)
				m.addPod("plain")
				report := m.enrolment().Enrol(t.Context(), true)
				m.expect(report, Planned)
				at := slices.IndexFunc(report.Facts, func(f Fact) bool { return f.Name == "holders" })
				if f := report.Facts[at]; f.Risk != Notice || !strings.Contains(f.Finding, "default/trainer (") {
					t.Errorf("the fact is %+v", f)
				}

				before := m.snapshot()
				report = m.enrol()
				m.expect(report, Undone)
				if !strings.Contains(report.Reason, "default/trainer (main)") {
					t.Errorf("it gives up because %s", report.Reason)
				}
				if after := m.snapshot(); after != before {
					t.Errorf("it has left\n%s\nof\n%s", after, before)
				}

				const restartTime = time.Minute
				time.AfterFunc(restartTime, func() { m.setRunning("trainer", true) })
				began := time.Now()
				m.expect(m.enrol(), Done)
				if took := time.Since(began); took < restartTime {
					t.Errorf("it took %v", took)
				}

				m.setRunning("trainer", false)
				report = m.leave()
				m.expect(report, Refused)
				if !strings.Contains(report.Reason, "default/trainer (main)") {
					t.Errorf("it does not leave because %s", report.Reason)
				}
				m.setRunning("trainer", true)
				m.expect(m.leave(), Done)
			})
		})
	}
}

// A kubelet before 1.35 may take a container that was restarted for one that does not run, as long
// as the runtime has the one before it.
func TestAContainerThatWasRestartedIsInTheWayOfAnOldKubelet(t *testing.T) {
	for kubelet, want := range map[string]Outcome{"v1.34.4": Undone, "v1.35.0": Done, "": Done} {
		t.Run("kubelet "+kubelet, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				m.write("/var/lib/kubelet/checkpoint", held)
				m.setKubelet(kubelet)
				m.addPod("trainer")
				m.setRunning("trainer", true)
				ended := func(state corev1.ContainerState) {
					m.changePod("trainer", func(pod *corev1.Pod) {
						pod.Status.ContainerStatuses[0].LastTerminationState = state
					})
				}
				ended(corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://c0ffee"},
				})

				report := m.enrol()
				m.expect(report, want)
				if want == Undone && !strings.Contains(report.Reason, "default/trainer (main, which") ||
					want == Undone && !strings.Contains(report.Reason, "crictl rm c0ffee") {
					t.Errorf("it gives up because %s", report.Reason)
				}
				ended(corev1.ContainerState{}) // the ended container was removed
				if want == Undone {
					m.expect(m.enrol(), Done)
				}
			})
		})
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// newNRIMachine returns a machine whose kubecri is an NRI plugin, with a directory of programs.
func newNRIMachine(t *testing.T) *machine {
	m := newMachine(t, kubeadm)
	m.write("/run/nri/nri.sock", "")
	m.options.Group, m.options.Owned = "gpus", []string{"/var/lib/programs"}
	m.options.NRI = &NRI{
		Node: nodeName, Kubeconfig: "/etc/kubernetes/kubelet.conf",
		Runtime: runtimeEndpoint, Socket: "/run/nri/nri.sock",
	}
	return m
}

func TestANodeOfAnNRIPluginIsEnrolledWithoutItsKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNRIMachine(t)
		before := m.snapshot()
		m.write("/var/lib/programs/kubecri", "program")
		m.expect(m.enrol(), Done)
		after := m.snapshot()
		if !strings.Contains(after, Label) || !strings.Contains(after, GroupLabel) || m.restarts != 0 {
			t.Errorf("the kubelet was restarted %d times, and the node is\n%s", m.restarts, after)
		}
		m.expect(m.enrol(), Unchanged)
		m.write("/var/lib/kubedevice/grants", "kubecri's")
		m.expect(m.leave(), Done)
		if diff := cmp.Diff(before, m.snapshot()); diff != "" {
			t.Errorf("what is left (-before +after):\n%s", diff)
		}
		if _, err := os.Stat(filepath.Join(m.root, lockPath)); err == nil {
			t.Error("the lock is left")
		}
		if m.stopped != 1 || m.restarts != 0 {
			t.Errorf("kubecri was ended %d times, the kubelet restarted %d times", m.stopped, m.restarts)
		}
		m.expect(m.leave(), Unchanged)
	})
}

func TestANodeWithoutNRIIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNRIMachine(t)
		if err := os.Remove(filepath.Join(m.root, "/run/nri/nri.sock")); err != nil {
			t.Fatal(err)
		}
		before := m.snapshot()
		report := m.enrol()
		m.expect(report, Refused)
		if !strings.Contains(report.Reason, "/run/nri/nri.sock does not exist") {
			t.Errorf("the reason is %q", report.Reason)
		}
		if diff := cmp.Diff(before, m.snapshot()); diff != "" {
			t.Errorf("it changes (-before +after):\n%s", diff)
		}
	})
}

func TestALeaveOfAnNRIPluginSurvivesACrashAtAnyStep(t *testing.T) {
	crashes := 0
	for crashed := true; crashed; crashes++ {
		synctest.Test(t, func(t *testing.T) {
			m := newNRIMachine(t)
			before := m.snapshot()
			m.write("/var/lib/programs/kubecri", "program")
			m.expect(m.enrol(), Done)
			_, crashed = m.until(crashes, leave)
			if report := m.enrol(); crashed && report.Outcome == Refused && !report.Leaving {
				t.Errorf("crash %d: an enrolment does not say that the leave is to go on: %+v", crashes, report)
			}
			if report := m.leave(); report.Outcome != Done && report.Outcome != Unchanged {
				t.Errorf("crash %d, then leave: %s: %s", crashes, report.Outcome, report.Reason)
			}
			if err := os.RemoveAll(filepath.Join(m.root, "/var/lib/programs")); err != nil { // as the agent does
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, m.snapshot()); diff != "" {
				t.Errorf("crash %d, then leave, leaves (-before +after):\n%s", crashes, diff)
			}
		})
	}
	if crashes < 5 {
		t.Errorf("only %d crashes", crashes)
	}
}

func TestDirectoriesThatAreKubecrisAloneGoWithTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.options.Group, m.options.Owned = "gpus", []string{"/var/lib/programs", "/run/kubedevice"}
		before := m.snapshot()
		m.write("/var/lib/programs/kubecri", "program")
		m.expect(m.enrol(), Done)
		m.write("/run/kubedevice/boot", "kubecri's")
		m.expect(m.leave(), Done)
		if diff := cmp.Diff(before, m.snapshot()); diff != "" {
			t.Errorf("what is left (-before +after):\n%s", diff)
		}
		for _, directory := range m.options.Owned {
			if _, err := os.Stat(filepath.Join(m.root, directory)); err == nil {
				t.Errorf("%s is left", directory)
			}
		}
	})
}

func TestAKubeconfigThatIsNotThereIsNamedWithWhereToSetIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNRIMachine(t)
		m.connectErr = &fs.PathError{Op: "stat", Path: "/etc/kubernetes/kubelet.conf", Err: fs.ErrNotExist}
		report := m.enrol()
		m.expect(report, Refused)
		if f := report.Facts[0]; f.Name != "kubeconfig" || !strings.Contains(f.Finding, m.options.NRI.Kubeconfig) ||
			!strings.Contains(f.Finding, "does not exist") || !strings.Contains(f.Advice, "node.kubeconfig") {
			t.Errorf("%+v", f)
		}
	})
}

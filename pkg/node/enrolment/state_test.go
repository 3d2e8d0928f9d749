// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/statetest"
)

// config is the kubelet's configuration file.
const config = "/var/lib/kubelet/config.yaml"

// putsBack has an administrator put the kubelet's endpoint back.
func (m *machine) putsBack() { m.write(config, kubeadm[config]) }

// observe notes the state in the journal on disk, to which there must be a transition. A journal
// that cannot be read has none.
func (m *machine) observe() {
	m.t.Helper()
	j, err := m.enrolment().load()
	if err != nil {
		return
	}
	if last := m.states[len(m.states)-1]; !m.transitions.Allow(last, j.state()) {
		m.t.Errorf("the node went from %v to %v, which state.go does not document", last, j.state())
	}
	m.states = append(m.states, j.state())
}

// reaches ends a run before the first change that follows a state, which the node is left in.
func (m *machine) reaches(want state, run func(*Enrolment) *Report) {
	m.t.Helper()
	for crashAt := 0; ; crashAt++ {
		_, crashed := m.until(crashAt, run)
		if m.observe(); m.states[len(m.states)-1] == want {
			return
		}
		if !crashed {
			m.t.Fatalf("the run has ended without the state %v: %v", want, m.states)
		}
	}
}

// walks are the transitions of the comment of state. Each brings the node into the first state and
// out of it.
var walks = map[string]func(m *machine){
	"Absent enrol finds no fact that blocks -> Enrolling": func(m *machine) { m.expect(m.enrol(), Done) },
	"Enrolling kubecri is registered with NRI -> Enrolled": func(m *machine) {
		m.options.Mode = ModeNRI
		m.expect(m.enrol(), Done)
	},
	"Enrolling enrol is about to write files of the kubelet -> Switching": func(m *machine) {
		m.reaches(enrolling, enrol)
		m.expect(m.enrol(), Done)
	},
	"Enrolling enrol fails, or leave runs -> Leaving": func(m *machine) {
		m.kubecriErr = context.DeadlineExceeded
		m.expect(m.enrol(), Undone)
		m.kubecriErr = nil
		m.reaches(enrolling, enrol)
		m.expect(m.leave(), Done)
	},
	"Switching the kubelet calls kubecri -> Enrolled": func(m *machine) {
		m.reaches(switching, enrol)
		m.expect(m.enrol(), Done)
	},
	"Switching enrol fails, or leave runs -> Leaving": func(m *machine) {
		m.dead = true
		m.expect(m.enrol(), Undone)
		m.dead = false
		m.reaches(switching, enrol)
		m.expect(m.leave(), Done)
	},
	"Enrolled enrol finds that the kubelet's files were changed -> Repairing": func(m *machine) {
		m.expect(m.enrol(), Done)
		m.putsBack()
		m.expect(m.enrol(), Done)
	},
	"Enrolled leave cordons the node -> Vacating": func(m *machine) {
		m.expect(m.enrol(), Done)
		m.expect(m.leave(), Done)
	},
	"Enrolled leave runs on a node that others have cordoned -> Leaving": func(m *machine) {
		m.expect(m.enrol(), Done)
		m.changeNode(func(node *corev1.Node) { node.Spec.Unschedulable = true })
		m.expect(m.leave(), Done)
	},
	"Repairing enrol is about to write files of the kubelet -> Rewriting": func(m *machine) {
		m.repairs(repairing)
		m.expect(m.enrol(), Done)
	},
	"Repairing enrol fails -> Enrolled": func(m *machine) {
		m.repairs(repairing)
		m.runtimeErr = context.DeadlineExceeded
		m.expect(m.enrol(), Undone)
	},
	"Repairing leave runs -> Leaving": func(m *machine) {
		m.repairs(repairing)
		m.expect(m.leave(), Done)
	},
	"Rewriting the kubelet calls kubecri -> Enrolled": func(m *machine) {
		m.repairs(rewriting)
		m.expect(m.enrol(), Done)
	},
	"Rewriting enrol fails and restores the kubelet's files -> Enrolled": func(m *machine) {
		m.repairs(rewriting)
		m.dead = true
		m.expect(m.enrol(), Undone)
	},
	"Rewriting leave runs -> Leaving": func(m *machine) {
		m.repairs(rewriting)
		m.expect(m.leave(), Done)
	},
	"Vacating leave is refused -> Enrolled": func(m *machine) {
		m.write("/var/lib/kubelet/checkpoint", held)
		m.addPod("trainer")
		m.setRunning("trainer", true)
		m.expect(m.enrol(), Done)
		m.setRunning("trainer", false)
		m.expect(m.leave(), Refused)
	},
	"Vacating leave was cut off, and enrol runs -> Enrolled": func(m *machine) {
		m.expect(m.enrol(), Done)
		m.reaches(vacating, leave)
		m.expect(m.enrol(), Unchanged)
	},
	"Vacating enrol finds that the kubelet's files were changed -> Repairing": func(m *machine) {
		m.expect(m.enrol(), Done)
		m.reaches(vacating, leave)
		m.putsBack()
		m.expect(m.enrol(), Done)
	},
	"Vacating leave finds no pod with devices -> Leaving": func(m *machine) {
		m.expect(m.enrol(), Done)
		m.reaches(vacating, leave)
		m.expect(m.leave(), Done)
	},
	"Leaving everything is as it was before -> Absent": func(m *machine) {
		m.expect(m.enrol(), Done)
		m.reaches(leaving, leave)
		m.expect(m.enrol(), Refused)
		m.expect(m.leave(), Done)
	},
}

// repairs brings a node that is enrolled into a state of a repair.
func (m *machine) repairs(until state) {
	m.t.Helper()
	m.expect(m.enrol(), Done)
	m.putsBack()
	m.reaches(until, enrol)
}

// TestEveryTransitionIsWalked walks the transitions of the comment of state, and checks that the
// comment, the table above and the journal have no others.
func TestEveryTransitionIsWalked(t *testing.T) {
	statetest.Walk(t, "state.go", walks, func(t *testing.T, walk func(*machine)) (seen []state) {
		synctest.Test(t, func(t *testing.T) {
			m := newKubelet(t, kubeadm)
			walk(m)
			m.observe()
			seen = m.states
		})
		return seen
	})
}

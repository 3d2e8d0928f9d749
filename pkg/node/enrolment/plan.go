// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import "context"

// plan returns what is to be done, from the state of the node. It changes nothing.
func (e *Enrolment) plan(ctx context.Context, s *nodeState) (*journal, error) {
	j := &journal{
		Phase: phaseEnrolling, Node: s.kubelet.Node, Kubeconfig: s.kubelet.Kubeconfig, KubeletUnit: s.kubelet.unit,
		RemoveState: !e.options.Host.exists(e.options.StateDir),
		NRI:         e.options.NRI != nil, Group: e.options.Group, Owned: e.options.Owned,
	}
	if e.options.Mode == ModeNRI {
		j.Mode = ModeNRI // releases that know no other mode do not read it
	}
	return j, e.intended().plan(ctx, s, j)
}

// describe returns what each step of the plan does, for people.
func (e *Enrolment) describe(j *journal) []Step {
	var first []step
	if j.Group != "" {
		first = []step{{name: "group", actions: []string{"give node " + j.Node + " the label " + GroupLabel}}}
	}
	if e.recorded(j).disturbsPods() {
		first = append(first, cordonStep(j))
	}
	return described(append(first, e.enrolSteps(j)...))
}

// describeLeave returns what each step of the way back does, for people.
func (e *Enrolment) describeLeave(j *journal, drain bool) []Step {
	cordon := cordonStep(j)
	if drain {
		cordon.actions = append(cordon.actions, "evict the device pods, and wait until they are gone")
	}
	return described(append([]step{cordon}, e.leaveSteps(j)...))
}

func cordonStep(j *journal) step {
	return step{name: "cordon", actions: []string{"cordon node " + j.Node + " until the end"}}
}

// enrolSteps returns the steps of an enrolment, of which the last one is to label the node.
func (e *Enrolment) enrolSteps(j *journal) []step {
	label := step{"label", []string{"give node " + j.Node + " the label " + Label}, e.label}
	return append(e.recorded(j).enrolSteps(j), label)
}

// leaveSteps returns the steps of the way back, of which the last one is to remove the labels.
func (e *Enrolment) leaveSteps(j *journal) []step {
	label := step{"label", []string{"take the label " + Label + " from node " + j.Node}, e.unlabel}
	if j.Group != "" {
		label.actions = append(label.actions, "take the label "+GroupLabel+" from it")
	}
	return append(e.recorded(j).leaveSteps(j), label)
}

// described returns steps for people.
func described(steps []step) []Step {
	list := make([]Step, len(steps))
	for i, step := range steps {
		list[i] = Step{Name: step.name, Actions: step.actions}
	}
	return list
}

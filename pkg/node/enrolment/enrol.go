// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"k8s.io/client-go/kubernetes"
)

// Enrol puts kubecri where its mode wants it, or goes on with what was begun. If it fails, or ctx
// is done, everything goes back to what it was. With dryRun it only says what it would do.
func (e *Enrolment) Enrol(ctx context.Context, dryRun bool) *Report {
	release, err := e.lockJournal()
	if err != nil {
		return refusedReport("", err)
	}
	defer release()
	j, err := e.load()
	if err != nil {
		return refusedReport("", err)
	}
	report := &Report{Outcome: Planned}
	switch {
	case j == nil:
		if j = e.preflight(ctx, report); j == nil {
			return report
		}
	case j.mode() != e.options.Mode:
		return refusedReport(j.Node, fmt.Errorf("it is enrolled in mode %s, and %s says mode: %s: run kubecri leave "+
			"first, with the device pods drained", j.mode(), e.options.ConfigFile, e.options.Mode))
	case j.state() == leaving:
		report := refusedReport(j.Node,
			errors.New("it is on the way back: kubecri leave goes on with that, then enrol again"))
		report.Leaving = true
		return report
	case j.state() == enrolled, j.state() == vacating:
		stale, err := e.refresh(j)
		if err != nil {
			return refusedReport(j.Node, err)
		}
		if len(stale) == 0 {
			return e.alreadyEnrolled(ctx, j, dryRun)
		}
		j.Phase, j.Repair, j.Unwritten = phaseEnrolling, true, true
	}
	report.Node, report.Steps = j.Node, e.describe(j)
	if dryRun {
		return report
	}
	client, err := e.options.APIServers.Connect(j.Kubeconfig)
	if err != nil {
		return refusedReport(j.Node, err)
	}
	if err := e.save(j); err != nil {
		return refusedReport(j.Node, err)
	}
	if err := e.runEnrolSteps(ctx, j, client); err != nil {
		e.progress("undo everything: %v", err)
		report.Outcome, report.Reason, report.Changed = Undone, err.Error(), false
		undo := e.undo
		if j.state().repairs() {
			undo = e.undoRepair
		}
		if failed := undo(context.WithoutCancel(ctx), j, client); failed != nil {
			report.Outcome, report.Changed = Stuck, true
			report.Reason = fmt.Sprintf("%v; and on the way back: %v; kubecri leave goes on with it", err, failed)
		}
		return report
	}
	report.Outcome, report.Changed = Done, true
	return report
}

// alreadyEnrolled reports that the node is enrolled already. A leave that was cut off may have
// cordoned it.
func (e *Enrolment) alreadyEnrolled(ctx context.Context, j *journal, dryRun bool) *Report {
	report := &Report{Node: j.Node, Outcome: Unchanged}
	if j.state() != vacating || dryRun {
		return report
	}
	client, err := e.options.APIServers.Connect(j.Kubeconfig)
	if err != nil {
		return refusedReport(j.Node, err)
	}
	e.progress("kubecri leave was cut off and has left node %s cordoned: pods may come again", j.Node)
	if err := e.uncordon(ctx, j, client); err != nil {
		return refusedReport(j.Node, err)
	}
	return report
}

func refusedReport(node string, err error) *Report {
	return &Report{Node: node, Outcome: Refused, Reason: err.Error()}
}

// preflight finds the facts and returns the plan, or nil if it is refused.
func (e *Enrolment) preflight(ctx context.Context, report *Report) *journal {
	s, facts := e.inspect(ctx)
	if s != nil {
		report.Node, facts = s.kubelet.Node, e.intended().facts(ctx, s)
	}
	report.Facts = facts
	if blocking := slices.DeleteFunc(slices.Clone(facts), func(f Fact) bool { return f.Risk != Blocks }); len(
		blocking) > 0 {
		report.Outcome = Refused
		report.Reason = fmt.Sprintf("%s: %s", blocking[0].Name, blocking[0].Finding)
		if more := len(blocking) - 1; more > 0 {
			report.Reason += fmt.Sprintf("; and %d more", more)
		}
		return nil
	}
	j, err := e.plan(ctx, s)
	if err != nil {
		report.Outcome, report.Reason = Refused, err.Error()
		return nil
	}
	return j
}

// runEnrolSteps does all steps.
func (e *Enrolment) runEnrolSteps(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if err := e.labelGroup(ctx, j, client); err != nil {
		return err
	}
	if e.recorded(j).disturbsPods() {
		if err := e.cordoned(ctx, j, client); err != nil {
			return err
		}
	}
	if err := e.run(ctx, e.enrolSteps(j), j, client); err != nil {
		return err
	}
	if err := e.uncordon(ctx, j, client); err != nil {
		return err
	}
	j.Phase, j.Repair, j.Unwritten = phaseEnrolled, false, false
	return e.save(j)
}

// cordoned cordons the node for an enrolment, which the pods that it then has must not forbid.
func (e *Enrolment) cordoned(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if err := e.cordon(ctx, j, client); err != nil {
		return err
	}
	if !j.state().repairs() {
		// A pod may have come since the facts were found.
		s, facts := e.inspect(ctx)
		if s == nil {
			return errors.New(facts[0].Finding)
		}
		if found := e.intended().holdersFact(s); found.Risk == Blocks {
			return fmt.Errorf("%s: %s", found.Finding, found.Advice)
		}
	}
	return nil
}

// undoRepair goes back to the endpoint that somebody had put back. kubecri stays: pods may hold its
// devices. A kubelet whose files the repair had not changed yet is not restarted, as that may fail
// pods.
func (e *Enrolment) undoRepair(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if j.state() == rewriting {
		if err := e.cri().switchKubeletBack(ctx, j, client); err != nil {
			return err
		}
	}
	if err := e.uncordon(ctx, j, client); err != nil {
		return err
	}
	j.Phase, j.Repair, j.Unwritten = phaseEnrolled, false, false
	return e.save(j)
}

// inspect reads the state of the node. Facts say why it cannot; then nothing else is known.
func (e *Enrolment) inspect(ctx context.Context) (*nodeState, []Fact) {
	kubelet, unknown := e.intended().kubelet(ctx)
	if unknown != nil {
		return nil, []Fact{*unknown}
	}
	s := &nodeState{kubelet: kubelet}
	var err error
	if s.client, err = e.options.APIServers.Connect(s.kubelet.Kubeconfig); err != nil {
		return nil, []Fact{e.kubeconfigFact(s.kubelet.Kubeconfig, err)}
	}
	if s.pods, err = podsOn(ctx, s.client, s.kubelet.Node); err != nil {
		return nil, []Fact{unreadable("pods", err)}
	}
	s.devices, err = kubeletstate.Read(e.options.Host.path(e.options.CheckpointPath))
	if err != nil {
		return nil, []Fact{unreadable("devices", err)}
	}
	return s, nil
}

// kubeconfigFact is about a kubeconfig with which no client can be made.
func (e *Enrolment) kubeconfigFact(kubeconfig string, err error) Fact {
	if !errors.Is(err, fs.ErrNotExist) {
		return fact("kubeconfig", "%s cannot be used: %v", kubeconfig, err).
			blocks("correct it: it must be the kubelet's")
	}
	return fact("kubeconfig", "%s does not exist on this node", kubeconfig).blocks(e.intended().kubeconfigAdvice())
}

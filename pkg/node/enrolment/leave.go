// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/documents"
)

// Leave takes kubecri out again, or goes on with what was begun. It refuses while device pods run
// that kubecri has granted devices to: a container of theirs that is created again would silently
// run without. So it does while pods run whose devices the kubelet has forgotten: it would give
// them to others. With drain it evicts both. It names the pods that only KubeDevice's scheduler
// serves. With dryRun it only says what it would do.
func (e *Enrolment) Leave(ctx context.Context, dryRun, drain bool) *Report {
	release, err := e.lockJournal()
	if err != nil {
		return refusedReport("", err)
	}
	defer release()
	j, err := e.load()
	if err != nil {
		return refusedReport("", err)
	}
	if j == nil {
		return &Report{Outcome: Unchanged, Reason: "kubecri enrol has not enrolled this node"}
	}
	report := &Report{Node: j.Node, Outcome: Planned, Steps: e.describeLeave(j, drain)}
	client, err := e.options.APIServers.Connect(j.Kubeconfig)
	if err != nil {
		return refusedReport(j.Node, err)
	}
	report.Facts = []Fact{e.waitingFact(ctx), requiredFact(ctx, j, client)}
	refuse := func(err error) *Report {
		report.Outcome, report.Reason, report.Steps = Refused, err.Error(), nil
		return report
	}
	if err := e.checkDevicePods(ctx, j, client, drain); err != nil {
		return refuse(err)
	}
	if dryRun {
		return report
	}
	if err := e.vacate(ctx, j, client, drain); err != nil {
		return refuse(errors.Join(err, e.uncordon(context.WithoutCancel(ctx), j, client)))
	}
	report.Outcome, report.Changed = Done, true
	if err := e.undo(ctx, j, client); err != nil {
		report.Outcome, report.Reason = Stuck, fmt.Sprintf("%v; kubecri leave goes on with it", err)
	}
	return report
}

// requiredFact is about containers with devices that are created when kubecri has left, of pods
// that the API server did not show.
func requiredFact(ctx context.Context, j *journal, client kubernetes.Interface) Fact {
	const advice = "such a container would start without its devices: see that no such pod is left (" +
		documents.URL + "deploy/required-plugin.md)"
	node, err := client.CoreV1().Nodes().Get(ctx, j.Node, metav1.GetOptions{})
	if err != nil {
		return fact("NRI", "unknown: %v", err).notice(advice)
	}
	if node.Annotations[deviceinfo.RequiredPluginAnnotation] == deviceinfo.NRIPlugin {
		return fact("NRI", "the container runtime refuses containers of our device pods while kubecri is away")
	}
	return fact("NRI", "the container runtime does not refuse containers of our device pods while kubecri is away").
		notice(advice)
}

// checkDevicePods returns an error if there are device pods that are not to be evicted.
func (e *Enrolment) checkDevicePods(ctx context.Context, j *journal, client kubernetes.Interface, drain bool) error {
	pods, err := e.devicePods(ctx, j, client)
	if err != nil {
		return err
	}
	if err := daemonsAmong(pods); err != nil {
		return err
	}
	if len(pods) > 0 && !drain {
		return fmt.Errorf("device pods run: %s; a container of theirs that is created again would have no device: let "+
			"them end, or evict them with --drain", podNames(pods))
	}
	return nil
}

// vacate makes the node one without device pods, to which none come, that can be left.
func (e *Enrolment) vacate(ctx context.Context, j *journal, client kubernetes.Interface, drain bool) error {
	if err := e.cordon(ctx, j, client); err != nil {
		return err
	}
	var err error
	if drain {
		err = e.drain(ctx, j, client)
	} else {
		err = e.checkDevicePods(ctx, j, client, drain) // one may have come meanwhile
	}
	if err != nil {
		return err
	}
	return e.recorded(j).awaitVacated(ctx, j, client)
}

// undo goes back to what was before, from wherever the enrolment has come to.
func (e *Enrolment) undo(ctx context.Context, j *journal, client kubernetes.Interface) error {
	j.Phase = phaseLeaving
	if err := e.save(j); err != nil {
		return err
	}
	if err := e.run(ctx, e.leaveSteps(j), j, client); err != nil {
		return err
	}
	if err := e.uncordon(ctx, j, client); err != nil {
		return err
	}
	return e.forget()
}

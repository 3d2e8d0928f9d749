// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"os"
	"slices"

	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
)

// step is a part of the way there or back. It can be repeated, and one of the way back works
// after any part of the way there.
type step struct {
	name string
	// actions are what it does, for people.
	actions []string
	do      func(context.Context, *journal, kubernetes.Interface) error
}

// run does the steps.
func (e *Enrolment) run(ctx context.Context, steps []step, j *journal, client kubernetes.Interface) error {
	for _, step := range steps {
		e.progress("%s", step.name)
		if err := step.do(ctx, j, client); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// runtimeCDI is cdi.SpecDir without the symbolic link /var/run, which leads out of a mounted root.
const runtimeCDI = "/run/cdi"

// removeState removes kubecri's state, if it was not there before. While a pod runs that holds
// devices, as one of a DaemonSet may that came before an enrolment failed, it stays: a kubecri that
// comes back needs it to know who holds what.
func (e *Enrolment) removeState(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if !j.RemoveState {
		return nil
	}
	pods, err := e.devicePods(ctx, j, client)
	if err != nil {
		return err
	}
	holders := slices.DeleteFunc(pods, func(pod podRef) bool { return !pod.holds })
	if len(holders) > 0 {
		e.progress("%s stays, so that a kubecri that comes back knows who holds devices: %s", e.options.StateDir,
			podNames(holders))
		return nil
	}
	e.options.Host.noteChange(e.options.StateDir)
	return os.RemoveAll(e.options.Host.path(e.options.StateDir))
}

// removeOwned removes the directories that were there for kubecri alone, and its CDI devices. A
// program in the directories that runs, as this one may, goes on.
func (e *Enrolment) removeOwned(j *journal) error {
	devices := e.options.Host.path(runtimeCDI)
	if err := cdi.NewVariables(devices).Remove(); err != nil {
		return err
	}
	_ = os.Remove(devices) // unless it has something of another program
	for _, directory := range j.Owned {
		e.options.Host.noteChange(directory)
		if err := os.RemoveAll(e.options.Host.path(directory)); err != nil {
			return err
		}
	}
	return nil
}

// restore makes a file what it was before. If another user has changed it since, it stays, but for
// the endpoint in it, if it is the one that was set here. An installed file has none.
func (e *Enrolment) restore(change change, endpoint string) error {
	if err := e.options.Host.sweep(change.Path); err != nil {
		return err
	}
	now, err := e.options.Host.read(change.Path)
	switch {
	case err != nil:
		return err
	case now.same(change.Before):
		return nil
	case now.same(change.After):
		return e.options.Host.write(change.Path, change.Before)
	case !now.Exists || endpoint == "":
		e.progress("%s was changed by another program or user: it is kept", change.Path)
		return nil
	}
	set, err := change.Format.endpointIn(now.Content)
	if err != nil || !sameEndpoint(set, endpoint) {
		return err
	}
	old, err := change.Format.endpointIn(change.Before.Content)
	if err != nil {
		return err
	}
	if now.Content, err = change.Format.setEndpoint(now.Content, old); err != nil {
		return fmt.Errorf("%s: %w", change.Path, err)
	}
	e.progress("%s was changed by another program or user: only the endpoint in it is restored", change.Path)
	return e.options.Host.write(change.Path, now)
}

// labelGroup puts the label of its group on the node, first of all: with it, the pod that enrols
// the node stays there until the node has left, and an uninstallation of KubeDevice waits for it.
func (e *Enrolment) labelGroup(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if j.Group == "" {
		return nil
	}
	return patchNode(ctx, client, j.Node, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, GroupLabel, j.Group))
}

// label puts the label on the node that says it is enrolled.
func (e *Enrolment) label(ctx context.Context, j *journal, client kubernetes.Interface) error {
	return patchNode(ctx, client, j.Node, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, Label))
}

// unlabel takes both away. Nothing may be left to do after it: with the label of its group goes the
// pod that enrolled the node.
func (e *Enrolment) unlabel(ctx context.Context, j *journal, client kubernetes.Interface) error {
	labels := `"` + Label + `":null`
	if j.Group != "" {
		labels += fmt.Sprintf(`,%q:null`, GroupLabel)
	}
	return patchNode(ctx, client, j.Node, `{"metadata":{"labels":{`+labels+`}}}`)
}

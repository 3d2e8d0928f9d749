// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
)

// step is a part of the way there or back. It can be repeated, and one of the way back works
// after any part of the way there.
type step struct {
	name string
	do   func(context.Context, *journal, kubernetes.Interface) error
}

// there are the steps of an enrolment, while the node is cordoned.
func (e *Enrolment) there(j *journal) []step {
	switch {
	case j.NRI:
		return []step{{"label", e.label}}
	case j.mode() == ModeNRI:
		return []step{{"services", e.startServices}, {"label", e.label}}
	}
	return []step{{"services", e.startServices}, {"kubelet", e.switchKubelet}, {"label", e.label}}
}

// back are the steps of the way back. The kubelet comes first, as it must come up again even when
// the API server is away, which the others need.
func (e *Enrolment) back(j *journal) []step {
	switch {
	case j.NRI:
		return []step{{"plugin", e.stopPlugin}, {"label", e.unlabel}}
	case j.mode() == ModeNRI:
		return []step{{"services", e.stopServices}, {"label", e.unlabel}}
	}
	return []step{{"kubelet", e.switchKubeletBack}, {"services", e.stopServices}, {"label", e.unlabel}}
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

// startServices installs kubecri and starts it.
func (e *Enrolment) startServices(ctx context.Context, j *journal, _ kubernetes.Interface) error {
	if err := e.makeDirectories(j); err != nil {
		return err
	}
	for _, change := range j.Installed {
		if err := e.install(change); err != nil {
			return err
		}
	}
	if err := e.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if j.StartServices {
		if err := e.systemctl(ctx, append([]string{"enable", "--now"}, j.mode().units()...)...); err != nil {
			return err
		}
	}
	if j.mode() == ModeNRI {
		err := e.await(ctx, runtimeLimit, "kubecri is registered with NRI", e.options.Kubecri.Registered)
		if err != nil {
			return fmt.Errorf("the runtime does not ask kubecri: %w; see journalctl -u %s", err, serviceUnit)
		}
		return nil
	}
	err := e.await(ctx, runtimeLimit, "the runtime answers at "+j.Endpoint, func(ctx context.Context) error {
		_, err := e.options.Runtimes.Version(ctx, j.Endpoint)
		return err
	})
	if err != nil {
		return fmt.Errorf("kubecri does not serve the runtime: %w; see journalctl -u %s", err, serviceUnit)
	}
	return nil
}

// install writes a file of kubecri. One that is there by now stays: it was written before a crash,
// or it is the administrator's.
func (e *Enrolment) install(change change) error {
	now, err := e.options.Host.read(change.Path)
	switch {
	case err != nil:
		return err
	case !now.Exists:
		return e.options.Host.write(change.Path, change.After)
	case !now.same(change.After):
		e.progress("%s was changed by somebody else: it stays as it is", change.Path)
	}
	return nil
}

// stopServices stops kubecri, takes away what it published, and removes what was installed.
func (e *Enrolment) stopServices(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if j.StartServices {
		for _, name := range j.mode().units() {
			unit, err := e.unit(ctx, name)
			if err != nil {
				return err
			}
			if unit["LoadState"] != "loaded" {
				continue // it was not installed, or is removed already
			}
			if err := e.systemctl(ctx, "disable", "--now", name); err != nil {
				return err
			}
		}
		if err := e.options.Kubecri.Withdraw(ctx, client, j.Node); err != nil {
			return err
		}
	}
	for _, change := range j.Installed {
		if err := e.restore(change, ""); err != nil {
			return err
		}
	}
	if err := e.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := errors.Join(e.removeState(ctx, j, client), e.removeOwned(j)); err != nil {
		return err
	}
	for _, directory := range slices.Backward(j.Directories) {
		// One that is not empty has something of somebody else's.
		_ = os.Remove(e.options.Host.path(directory))
	}
	return nil
}

// runtimeCDI is cdi.SpecDir without the symbolic link /var/run, which leads out of a mounted root.
const runtimeCDI = "/run/cdi"

// stopPlugin ends kubecri, takes away what it published, and removes what it kept.
func (e *Enrolment) stopPlugin(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if e.options.NRI != nil {
		if err := e.options.Kubecri.Stop(ctx); err != nil {
			return err
		}
	}
	if err := e.options.Kubecri.Withdraw(ctx, client, j.Node); err != nil {
		return err
	}
	return errors.Join(e.removeState(ctx, j, client), e.removeOwned(j))
}

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
			names(holders))
		return nil
	}
	e.options.Host.note(e.options.StateDir)
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
		e.options.Host.note(directory)
		if err := os.RemoveAll(e.options.Host.path(directory)); err != nil {
			return err
		}
	}
	return nil
}

// awaitContainers waits for a moment in which a restart of the kubelet fails no pod: each container
// with a device of the kubelet runs.
func (e *Enrolment) awaitContainers(ctx context.Context, j *journal, client kubernetes.Interface) error {
	return e.await(ctx, containersLimit, "all containers run that hold devices of the kubelet",
		func(ctx context.Context) (err error) {
			s := &surroundings{}
			if s.pods, err = podsOn(ctx, client, j.Node); err != nil {
				return err
			}
			s.devices, err = kubeletstate.Read(e.options.Host.path(e.options.CheckpointPath))
			if err != nil {
				return err
			}
			node, err := client.CoreV1().Nodes().Get(ctx, j.Node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if down := s.down(node.Status.NodeInfo.KubeletVersion); len(down) > 0 {
				return fmt.Errorf("a restart of the kubelet would fail pods, of which containers with devices do not "+
					"run now: %s", strings.Join(down, ", "))
			}
			return nil
		})
}

// switchKubelet makes the kubelet call kubecri.
func (e *Enrolment) switchKubelet(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if err := e.awaitContainers(ctx, j, client); err != nil {
		return err
	}
	stale, err := e.refresh(j)
	if err != nil {
		return err
	}
	j.Switched, j.Unwritten = true, false
	if err := e.save(j); err != nil {
		return err
	}
	for _, change := range stale {
		if err := e.options.Host.write(change.Path, change.After); err != nil {
			return err
		}
	}
	began, err := secondAfterHeartbeat(ctx, client, j.Node)
	if err != nil {
		return err
	}
	alive, err := alivePods(ctx, client, j.Node)
	if err != nil {
		return err
	}
	return e.restartKubelet(ctx, j, func(ctx context.Context) error {
		if err := readySince(ctx, client, j.Node, began); err != nil {
			return err
		}
		flag, err := e.startedWith(ctx, j)
		if err != nil {
			return err
		}
		if flag != "" && !sameEndpoint(flag, j.Endpoint) {
			return &final{fmt.Errorf("its process has --%s=%s, so something else than the files that were changed "+
				"says so: see systemctl cat %s", endpointFlag, flag, j.KubeletUnit)}
		}
		return lost(ctx, client, j.Node, alive)
	})
}

// startedWith returns the endpoint that the kubelet's process was given as a flag, if it was.
func (e *Enrolment) startedWith(ctx context.Context, j *journal) (string, error) {
	unit, err := e.unit(ctx, j.KubeletUnit)
	if err != nil {
		return "", err
	}
	flags, err := e.kubeletFlags(unit)
	return flags[endpointFlag], err
}

// switchKubeletBack makes the kubelet call what it called before.
func (e *Enrolment) switchKubeletBack(ctx context.Context, j *journal, client kubernetes.Interface) error {
	for _, change := range j.Kubelet {
		if err := e.restore(change, j.Endpoint); err != nil {
			return err
		}
	}
	if !j.Switched {
		return nil
	}
	began, err := secondAfterHeartbeat(ctx, client, j.Node)
	if err != nil {
		began = time.Now().Truncate(time.Second) // the kubelet needs no API server for its containers
	}
	err = e.restartKubelet(ctx, j, func(ctx context.Context) error {
		if err := readySince(ctx, client, j.Node, began); err != nil {
			return err
		}
		flag, err := e.startedWith(ctx, j)
		if err == nil && sameEndpoint(flag, j.Endpoint) {
			err = &final{fmt.Errorf("its process still has --%s=%s: see systemctl cat %s", endpointFlag, flag,
				j.KubeletUnit)}
		}
		return err
	})
	if err != nil {
		return err
	}
	j.Switched = false
	return e.save(j)
}

// restore makes a file what it was before. If somebody else has changed it since, it stays, but for
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
		e.progress("%s was changed by somebody else: it stays as it is", change.Path)
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
	e.progress("%s was changed by somebody else: only the endpoint in it goes back", change.Path)
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

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/test/audit"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// scenario is some containers and what happens while they are created.
type scenario struct {
	// name begins the names of its pods, title is for people.
	name, title string
	// interval is the time between the creations of two pods.
	interval time.Duration
	// creations is how many containers are created at a time, Options.Creations if it is zero.
	creations int
	// disturb kills until it has done enough, however long that takes. It returns how often, and
	// leaves everything running. It hands workloads of its own to leave.
	disturb func(ctx context.Context, result *Result, leave func(*workload) error) (kills int, err error)
}

// scenario plays a scenario: as long as somebody disturbs, one workload after the other is created.
func (r *run) scenario(ctx context.Context, s scenario) (*Result, error) {
	began := time.Now()
	result := &Result{Scenario: s.title}
	disturbing, stop := context.WithCancel(ctx)
	disturbed := make(chan error, 1)
	go func() {
		defer close(disturbed)
		var err error
		result.Kills, err = s.disturb(disturbing, result,
			func(w *workload) error { return r.leave(ctx, w, result) })
		disturbed <- err
	}()
	defer func() {
		stop()
		for range disturbed { // until it has ended
		}
	}()
	for turn, calm := 0, false; !calm; turn++ {
		w := &workload{client: r.cluster.Client, namespace: r.namespace, name: fmt.Sprintf("%s-%d", s.name, turn),
			containers: perPod}
		err := w.create(ctx, cmp.Or(s.creations, r.options.Creations)/perPod, s.interval)
		if err == nil {
			calm, err = w.awaitReadyOr(ctx, disturbed)
		}
		if err != nil {
			return nil, err
		}
		ready, lost, err := r.awaitSettled(ctx, w, result)
		if err != nil {
			return nil, err
		}
		result.LostPods = append(result.LostPods, lost...)
		if err := r.audit(ctx, ready, result); err != nil {
			return nil, err
		}
		if err := r.leave(ctx, w, result); err != nil {
			return nil, err
		}
	}
	result.Seconds = time.Since(began).Seconds()
	return result, nil
}

// awaitSettled waits until the workload's pods are ready and their containers are settled.
func (r *run) awaitSettled(ctx context.Context, w *workload, result *Result) (ready []corev1.Pod, lost []string,
	err error) {
	limit := time.After(recoveryTimeout)
	for {
		if ready, lost, err = w.awaitReady(ctx, recoveryTimeout); err != nil || len(lost) > 0 {
			return ready, lost, err
		}
		now, err := r.inspect(result)
		if err != nil || r.settled(ready, now) {
			return ready, nil, err
		}
		select {
		case <-time.After(pollInterval):
		case <-limit:
			return ready, nil, nil // the audit says which is not
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// settled reports whether the containers of the pods have begun their commands, which is a moment
// after the runtime says so, and whether none is without a device where it will be ended for that:
// where kubecri is an NRI plugin.
func (r *run) settled(pods []corev1.Pod, now map[string]audit.Container) bool {
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			c, begun := now[containerID(status)]
			if !begun || r.options.Mode == cluster.ModeNRI && len(c.Devices) == 0 {
				return false
			}
		}
	}
	return true
}

// containerID returns the runtime's ID of a container.
func containerID(status corev1.ContainerStatus) string {
	_, id, _ := strings.Cut(status.ContainerID, "://")
	return id
}

// grantedTo returns the node's resources that a container of a grant's pod holds, sorted.
func grantedTo(grant grants.Allocation, container string) []string {
	if grant.PodInfo == nil {
		return nil
	}
	var paths []string
	for _, path := range grant.PodInfo.RunningContainers[container].AllocateFrom {
		paths = append(paths, string(path))
	}
	slices.Sort(paths)
	return paths
}

// leave deletes the workload's pods. The next ones wait for their devices.
func (r *run) leave(ctx context.Context, w *workload, result *Result) error {
	r.auditor.MayEnd(w.uids()...)
	if err := w.remove(ctx); err != nil {
		return err
	}
	r.aging.Go(func() {
		orphans, err := r.age(ctx, w)
		r.noting.Lock()
		defer r.noting.Unlock()
		result.OrphanedGrants = append(result.OrphanedGrants, orphans...)
		if err != nil {
			result.Failures = append(result.Failures, err.Error())
		}
	})
	return nil
}

// audit compares what pods that are ready have with what they should have.
func (r *run) audit(ctx context.Context, ready []corev1.Pod, result *Result) error {
	now, err := r.inspect(result)
	if err != nil {
		return err
	}
	recorded, err := r.checkpointed(ctx)
	if err != nil {
		return err
	}
	for _, pod := range ready {
		wrong, err := r.wrong(&pod, recorded[string(pod.UID)], now)
		if err != nil {
			return err
		}
		result.Creations += len(pod.Status.ContainerStatuses)
		result.WrongDevices = append(result.WrongDevices, wrong...)
	}
	return nil
}

// wrong says where the grant of a pod, or what its containers have of those that run, is not what
// the scheduler chose.
func (r *run) wrong(pod *corev1.Pod, grant grants.Allocation, now map[string]audit.Container) (wrong []string,
	err error) {
	for _, status := range pod.Status.ContainerStatuses {
		choice, err := r.observer.Choice(pod, status.Name)
		if err != nil {
			return nil, err
		}
		if granted := grantedTo(grant, status.Name); !slices.Equal(granted, choice.Paths) {
			wrong = append(wrong, fmt.Sprintf("%s: the scheduler chose %q, on record is %q", choice, choice.Paths,
				granted))
		}
		switch c, begun := now[containerID(status)]; {
		case !begun:
			wrong = append(wrong, fmt.Sprintf("%s: %s does not run", choice, status.ContainerID))
		case !slices.Equal(c.Devices, choice.Chosen):
			wrong = append(wrong, fmt.Sprintf("%s: the scheduler chose %q, the container has %q", choice, choice.Chosen,
				c.Devices))
		}
	}
	return wrong, nil
}

// age waits until the workload's pods are gone, and returns which of them are in the checkpoint a
// minute later.
func (r *run) age(ctx context.Context, w *workload) ([]string, error) {
	leaving, cancel := context.WithTimeout(ctx, recoveryTimeout)
	defer cancel()
	if err := w.gone(leaving); err != nil {
		return nil, err
	}
	limit := time.After(orphanAge)
	for {
		orphans, err := r.orphans(ctx, w)
		if err != nil || len(orphans) == 0 {
			return nil, err
		}
		select {
		case <-time.After(orphanAge / 60):
		case <-limit:
			return orphans, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// orphans returns the pods of the workload that are in the checkpoint.
func (r *run) orphans(ctx context.Context, w *workload) (orphans []string, err error) {
	recorded, err := r.checkpointed(ctx)
	if err != nil {
		return nil, err
	}
	for _, uid := range w.uids() {
		if grant, ok := recorded[uid]; ok {
			orphans = append(orphans, fmt.Sprintf("pod %s is gone and on record", grant.Name))
		}
	}
	return orphans, nil
}

// checkpointed returns the node's record of grants by the UIDs of pods.
func (r *run) checkpointed(ctx context.Context) (map[string]grants.Allocation, error) {
	return r.checkpointedBy(ctx, r.kubecri.Path)
}

// checkpointedBy returns the same as a certain kubecri reads it.
func (r *run) checkpointedBy(ctx context.Context, kubecri string) (map[string]grants.Allocation, error) {
	printed, err := r.node.Run(ctx, kubecri, "grants", "--output=json")
	if err != nil {
		return nil, err
	}
	var list []grants.Allocation
	if err := json.Unmarshal([]byte(printed), &list); err != nil {
		return nil, errors.Join(errors.New("read what kubecri grants prints"), err)
	}
	byUID := map[string]grants.Allocation{}
	for _, grant := range list {
		byUID[grant.PodUID] = grant
	}
	return byUID, nil
}

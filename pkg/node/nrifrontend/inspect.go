// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// inspectRetry is the time before containers are inspected again of which nothing was known, or
// that could not be ended.
const inspectRetry = time.Second

// existing is a container of the runtime.
type existing struct {
	pod       *api.PodSandbox
	container *api.Container
}

// inspect ends those of the containers that admission would not have let pass, unless they were
// there before kubecri came to this node: installing it ends no container. It calls ending before
// it ends one: the runtime ends none while it waits for the answer about another. It calls
// inspected when no container is left that has to be ended, as far as is known. It goes on, until
// ctx is done, with those of which nothing is known before the API server answers.
func (f *Frontend) inspect(
	ctx context.Context, pods map[string]*api.PodSandbox, containers []*api.Container, inspected, ending func(),
) {
	var left []existing
	since := f.options.Key.KeySince()
	for _, c := range containers {
		created := createdAt(c)
		old := !created.IsZero() && created.Before(since)
		if pod := pods[c.GetPodSandboxId()]; pod != nil && !old {
			left = append(left, existing{pod, c})
		}
	}
	for {
		var undecided []existing
		runs := false
		for _, c := range left {
			done, wrong := f.inspectOne(ctx, c, ending)
			if !done {
				undecided = append(undecided, c)
			}
			runs = runs || wrong && !done
		}
		if !runs && ctx.Err() == nil {
			inspected()
		}
		if left = undecided; len(left) == 0 {
			return
		}
		select {
		case <-time.After(inspectRetry):
		case <-ctx.Done():
			return
		}
	}
}

// inspectOne reports whether there is nothing left to do about the container, and whether it must
// be ended.
func (f *Frontend) inspectOne(ctx context.Context, c existing, ending func()) (done, wrong bool) {
	id, pod := c.container.GetId(), podOf(c.pod)
	if !f.options.View.has(id) {
		return true, false // it was removed
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KRef(pod.Namespace, pod.Name),
		logkey.PodUID, pod.UID, logkey.Container, c.container.GetName())
	// Converted, a container with many variables takes several times as much memory.
	reason, err := f.options.Admission.Inspect(ctx, containerOf(c.pod, c.container))
	switch {
	case err != nil:
		logger.V(4).Info("Whether a container must be ended is not known yet", logkey.Reason, err.Error())
		return false, false
	case reason == "":
		return true, false
	}
	logger.Info("Ending a container", logkey.Reason, reason)
	f.options.Events.WarnEnded(pod, reason)
	ending()
	if err := f.options.Ender.EndContainer(ctx, id); err != nil {
		logger.Error(err, "Cannot end a container; no other container gets a device before it has ended")
		return false, true
	}
	return true, true
}

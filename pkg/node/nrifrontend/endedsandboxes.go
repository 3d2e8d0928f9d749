// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
)

const (
	// removalTimeout is how long the runtime may take to list its sandboxes, or to remove one.
	removalTimeout = 30 * time.Second
	// settleTime is how long a sandbox has not been ready before it is removed: the kubelet reads
	// how its containers have ended after it has stopped it.
	settleTime = time.Second
	// sandboxTarget is the sum of all sandboxes down to which those that are not ready are removed.
	sandboxTarget = nribound.MaxSandboxes / 2
)

// removeEndedSandboxes removes sandboxes of pods that have ended, unless that is done already. It
// does not wait for that: the runtime answers no other call while it waits for a plugin. The caller
// holds the mutex.
func (f *Frontend) removeEndedSandboxes() {
	if f.removing {
		return
	}
	f.removing = true
	f.run(func() {
		if err := f.removeEnded(f.ctx); err != nil {
			klog.FromContext(f.ctx).Error(err, "Sandboxes of pods that have ended are not removed; large sandboxes "+
				"of others are refused")
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.removing = false
	})
}

// removeEnded removes sandboxes that are not ready, in which no container runs any more or ever
// again, until all take no more than room: first those of the namespace whose sandboxes take the
// most, the largest first. What is older than kubecri on this node stays. Sandboxes that are
// counted and that the runtime does not have, as another plugin has refused them, are forgotten.
func (f *Frontend) removeEnded(ctx context.Context) error {
	counted := f.sizes.sandboxIDs()
	before, err := f.listSandboxes(ctx)
	if err != nil {
		return err
	}
	select {
	case <-time.After(settleTime):
	case <-ctx.Done():
		return nil
	}
	now, err := f.listSandboxes(ctx)
	if err != nil {
		return err
	}
	for _, id := range counted {
		if _, was := before[id]; !was {
			if _, is := now[id]; !is {
				f.sizes.removeSandbox(id)
			}
		}
	}
	since := f.options.Key.KeySince()
	var ended []nrilist.Sandbox
	for id, s := range now {
		if was, listed := before[id]; listed && !was.Ready && !s.Ready && !s.Created.Before(since) {
			ended = append(ended, s)
		}
	}
	ended = removalOrder(ended)
	for len(ended) > 0 && ctx.Err() == nil {
		next := 0
		for excess := f.sizes.sandboxesSum() - sandboxTarget; next < len(ended) && excess > 0; next++ {
			excess -= ended[next].Size.Bytes
		}
		if next == 0 {
			return nil
		}
		forEach(ended[:next], func(s nrilist.Sandbox) {
			if ctx.Err() == nil {
				f.removeOne(ctx, s)
			}
		})
		// What could not be removed, or was smaller than its size in the list, leaves an excess.
		ended = ended[next:]
	}
	return nil
}

// listSandboxes returns the runtime's sandboxes by ID.
func (f *Frontend) listSandboxes(ctx context.Context) (map[string]nrilist.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	list, err := f.options.Source.Sandboxes(ctx)
	byID := make(map[string]nrilist.Sandbox, len(list))
	for _, s := range list {
		byID[s.GetId()] = s
	}
	return byID, err
}

// removeOne removes the sandbox of a pod that has ended, and says why.
func (f *Frontend) removeOne(ctx context.Context, s nrilist.Sandbox) {
	pod := admission.Pod{UID: s.GetUid(), Namespace: s.GetNamespace(), Name: s.GetName()}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KRef(pod.Namespace, pod.Name),
		logkey.PodUID, pod.UID)
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	if err := f.options.Ender.EndPod(ctx, s.GetId()); err != nil {
		logger.Error(err, "Cannot remove the sandbox of a pod that has ended")
		return
	}
	f.sizes.removeSandbox(s.GetId())
	reason := fmt.Sprintf("the sandbox of the pod, which has ended, is removed with the logs of its containers: its "+
		"labels and annotations take %d bytes where the container runtime describes it to NRI plugins, and those of "+
		"all pods of the node together more than the %d that are allowed", s.Size.Bytes, nribound.MaxSandboxes)
	logger.Info("Removed the sandbox of a pod that has ended", logkey.Reason, reason)
	f.options.Events.WarnEnded(pod, reason)
}

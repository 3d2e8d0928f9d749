// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// answerTimeout is how long the scheduler may take to find another device, before the pod is
// evicted.
const answerTimeout = 30 * time.Second

// Replacer requests other devices from the scheduler. *grants.Checkpoint does.
type Replacer interface {
	// RequestReplacement requests these containers of the pod, and for no others any more, unless
	// the pod has another generation of its allocation meanwhile. It returns since when it requests
	// all of them.
	RequestReplacement(podUID string, generation int64, containers []string) (since time.Time, err error)
}

// irreplaceable returns why the failed devices of a pod cannot be replaced, or nothing.
func (k *Controller) irreplaceable(a affected) string {
	switch {
	case k.NotReplaced != "":
		return k.NotReplaced
	case a.granted.Waits:
		return "the pod was granted none yet"
	case a.granted.Adopted:
		return "the kubelet gave the pod its devices"
	case a.lacksPlugin():
		return "no device plugin serves them"
	}
	for _, f := range a.failed {
		if !a.pod.Restarts(f.container) && !a.pod.NeverStarted(f.container) {
			return fmt.Sprintf("container %q is not started again after every exit code", f.container)
		}
	}
	return ""
}

// requestReplacement requests other devices if it is time and they can be replaced, and returns
// when the pod is to be evicted otherwise.
func (k *Controller) requestReplacement(ctx context.Context, a affected, due time.Time) (evictAt time.Time) {
	now := time.Now()
	switch {
	case k.irreplaceable(a) != "" || a.pod.Failure.Terminating:
		k.withdrawRequest(ctx, a)
		return due
	case now.Before(due):
		return due
	}
	var containers []string
	for _, f := range a.failed {
		containers = append(containers, f.container)
	}
	slices.Sort(containers)
	since, err := k.Replacer.RequestReplacement(a.uid, a.granted.Generation, slices.Compact(containers))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot request other devices; will retry",
			logkey.Pod, klog.KRef(a.pod.Namespace, a.pod.Name))
		return due.Add(answerTimeout)
	}
	return since.Add(answerTimeout)
}

// withdrawRequest requests no other devices any more.
func (k *Controller) withdrawRequest(ctx context.Context, a affected) {
	if !a.granted.Requests() {
		return
	}
	if _, err := k.Replacer.RequestReplacement(a.uid, a.granted.Generation, nil); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot withdraw the request for other devices; will retry",
			logkey.Pod, klog.KRef(a.pod.Namespace, a.pod.Name))
	}
}

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

// answerLimit is how long the scheduler may take to find another device, before the pod is evicted.
const answerLimit = 30 * time.Second

// Replacer asks the scheduler for other devices. *grants.Checkpoint does.
type Replacer interface {
	// Ask asks for these containers of the pod, and for no others any more, unless the pod has
	// another generation of its allocation meanwhile. It returns since when it asks for all of
	// them.
	Ask(podUID string, generation int64, containers []string) (since time.Time, err error)
}

// irreplaceable returns why the failed devices of a pod cannot be replaced, or nothing.
func (k *Keeper) irreplaceable(a affected) string {
	switch {
	case k.NotReplaced != "":
		return k.NotReplaced
	case a.granted.Adopted:
		return "the kubelet gave the pod its devices"
	}
	for _, f := range a.failed {
		if !a.pod.Restarts(f.container) && !a.pod.NeverStarted(f.container) {
			return fmt.Sprintf("container %q is not started again after every exit code", f.container)
		}
	}
	return ""
}

// ask asks for other devices if it is time and they can be replaced, and returns when the pod is to
// be evicted otherwise.
func (k *Keeper) ask(ctx context.Context, a affected, due time.Time) (evictAt time.Time) {
	now := time.Now()
	switch {
	case k.irreplaceable(a) != "" || a.pod.Failure.Terminating:
		k.askNoMore(ctx, a)
		return due
	case now.Before(due):
		return due
	}
	var containers []string
	for _, f := range a.failed {
		containers = append(containers, f.container)
	}
	slices.Sort(containers)
	since, err := k.Replacer.Ask(a.uid, a.granted.Generation, slices.Compact(containers))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Other devices cannot be asked for; it is tried again",
			logkey.Pod, klog.KRef(a.pod.Namespace, a.pod.Name))
		return due.Add(answerLimit)
	}
	return since.Add(answerLimit)
}

// askNoMore asks for no other devices any more.
func (k *Keeper) askNoMore(ctx context.Context, a affected) {
	if !a.granted.Requests() {
		return
	}
	if _, err := k.Replacer.Ask(a.uid, a.granted.Generation, nil); err != nil {
		klog.FromContext(ctx).Error(err, "Other devices are still asked for",
			logkey.Pod, klog.KRef(a.pod.Namespace, a.pod.Name))
	}
}

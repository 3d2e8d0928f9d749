// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The reasons of events on pods.
const (
	reasonTainted      = "DeviceTainted"      // a device has a taint that the pod does not tolerate for ever
	reasonTaintEvicted = "DeviceTaintEvicted" // the pod is evicted
	reasonTaintBlocked = "DeviceTaintBlocked" // it must not be, or cannot be yet
)

// TaintOptions are what a TaintController works with.
type TaintOptions struct {
	Taints  *Taints
	Grants  Grants
	Pods    Pods
	Events  Events
	Metrics Metrics
}

// TaintController evicts the pods that hold a device with a taint NoExecute which they do not
// tolerate, or not any longer. All that it has to know after a restart is in the API server. It
// belongs to one goroutine.
type TaintController struct {
	TaintOptions
	evictor Evictor
	pods    map[string]*taintedPod // by UID, of pods that are evicted, now or later
	// basis is what the round goes by: once it has changed, a taint may be gone.
	basis basis
}

// taintedPod is what was done for a pod.
type taintedPod struct {
	warned   string
	evicted  bool
	blocked  string
	attempts attempts
}

// NewTaintController returns a controller that calls the API server with the client; call Run.
func NewTaintController(options TaintOptions, client kubernetes.Interface) *TaintController {
	return &TaintController{
		TaintOptions: options, evictor: Evictor{client, options.Events, options.Metrics},
		pods: map[string]*taintedPod{},
	}
}

// Run follows taints, grants and pods until ctx is done.
func (k *TaintController) Run(ctx context.Context) {
	follow(ctx, k.Taints.List, k.Grants, k.Pods,
		func(taints []deviceinfo.DeviceTaint, granted []grants.Allocation, basis basis) (next time.Time) {
			k.basis = basis
			return k.reconcile(ctx, taints, granted)
		})
}

// reconcile does what is to be done now, and returns when there is more to do, or the zero time.
func (k *TaintController) reconcile(
	ctx context.Context, taints []deviceinfo.DeviceTaint, granted []grants.Allocation,
) (next time.Time) {
	executing := slices.DeleteFunc(slices.Clone(taints), func(t deviceinfo.DeviceTaint) bool {
		return t.Effect != corev1.TaintEffectNoExecute
	})
	present := map[string]bool{}
	for i := range granted {
		uid := granted[i].PodUID
		if len(executing) == 0 || !k.Pods.Active(uid) {
			continue
		}
		pod, _ := k.Pods.Get(uid)
		why, due, ends := k.untolerated(executing, pod, granted[i].PodInfo)
		if !ends || pod.Failure.Terminating {
			continue
		}
		present[uid] = true
		if k.pods[uid] == nil {
			k.pods[uid] = &taintedPod{}
		}
		at := k.reconcilePod(ctx, uid, pod, k.pods[uid], why, due)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	maps.DeleteFunc(k.pods, func(uid string, _ *taintedPod) bool { return !present[uid] })
	return next
}

// reconcilePod evicts a pod if it is time, and returns when there is more to do.
func (k *TaintController) reconcilePod(
	ctx context.Context, uid string, pod pods.Pod, s *taintedPod, why string, due time.Time,
) (next time.Time) {
	now := time.Now()
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: apitypes.UID(uid),
	}
	switch {
	case s.evicted:
		return time.Time{}
	case now.Before(due):
		if text := why + "; the pod is evicted if it is so at " + due.UTC().Format(time.RFC3339); text != s.warned {
			s.warned = text
			k.Events.Warn(ref, reasonTainted, text)
		}
		return due
	case !s.attempts.due(now):
		return s.attempts.next
	case k.basis.outdated():
		return now
	}
	s.evicted = k.evictor.try(ctx, ref, &s.attempts, &s.blocked, EvictionReasons{
		Evicted: reasonTaintEvicted, Blocked: reasonTaintBlocked, Why: why,
	})
	return s.attempts.next
}

// untolerated returns which taint ends a pod first, and when. ends is false for a pod that stays.
func (k *TaintController) untolerated(
	taints []deviceinfo.DeviceTaint, pod pods.Pod, allocation *types.PodInfo,
) (why string, due time.Time, ends bool) {
	for _, containers := range []map[string]types.ContainerInfo{
		allocation.InitContainers, allocation.RunningContainers,
	} {
		for _, container := range slices.Sorted(maps.Keys(containers)) {
			locations := slices.Sorted(maps.Values(containers[container].AllocateFrom))
			for _, from := range locations {
				path, err := resource.ParsePath(from)
				if err != nil {
					continue // it is on no device
				}
				for _, taint := range deviceinfo.TaintsOf(taints, path.Device()) {
					at, tolerated := k.endOf(taint, pod)
					if tolerated || ends && !at.Before(due) {
						continue
					}
					text := taint.Taint()
					why = fmt.Sprintf("%s, which container %q holds, has the taint %s, which the pod does not tolerate",
						kubeletdevice.Text(from), container, text.ToString())
					if at.After(k.Taints.since(taint)) {
						why = strings.TrimSuffix(why, "does not tolerate") + "tolerates for a time"
					}
					due, ends = at, true
				}
			}
		}
	}
	return why, due, ends
}

// endOf returns until when a pod tolerates a taint, or that it does for ever. The seconds of a
// toleration count from when the device was tainted; for a pod that started later, from then.
func (k *TaintController) endOf(taint deviceinfo.DeviceTaint, pod pods.Pod) (at time.Time, tolerated bool) {
	since := k.Taints.since(taint)
	toleration := deviceinfo.Toleration(pod.Tolerations, taint.Taint())
	switch {
	case toleration == nil:
		return since, false
	case toleration.TolerationSeconds == nil:
		return time.Time{}, true
	case pod.Started.After(since):
		since = pod.Started
	}
	return since.Add(time.Duration(max(0, *toleration.TolerationSeconds)) * time.Second), false
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

// controlled returns a pod of a ReplicaSet.
func controlled(pod *v1.Pod) *v1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: ptr.To(true)}}
	return pod
}

// boundWithout returns a pod of one GPU that was bound without it, and has not started.
func boundWithout(name string, change ...func(*v1.Pod)) *v1.Pod {
	pod := assumed(newPod(name, 1), "n")
	pod.Spec.SchedulerName = v1.DefaultSchedulerName
	pod.Status.Phase = v1.PodPending
	for _, f := range change {
		f(pod)
	}
	return pod
}

// evicted returns the names of the pods that the client was asked to evict, sorted.
func (f *fixture) evicted() []string {
	var names []string
	for _, action := range f.client.Actions() {
		if action.GetSubresource() == "eviction" {
			names = append(names, action.(clienttesting.CreateAction).GetObject().(metav1.Object).GetName())
		}
	}
	slices.Sort(names)
	return names
}

// texts returns the events that were written since the last call.
func (f *fixture) texts() []string {
	var texts []string
	for len(f.events.Events) > 0 {
		texts = append(texts, <-f.events.Events)
	}
	return texts
}

// answerEvictions makes the API server answer so, and do nothing.
func (f *fixture) answerEvictions(err error) {
	f.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "eviction", nil, err
	})
}

func unallocatedCount(t *testing.T) int {
	t.Helper()
	value, err := testutil.GetGaugeMetricValue(metrics.UnallocatedPods)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}

func TestAPodThatWasBoundWithoutDevicesIsReportedAndMaybeEvicted(t *testing.T) {
	own := func(pod *v1.Pod) { controlled(pod) }
	for name, test := range map[string]struct {
		pod     *v1.Pod
		event   string // a part of it; "" for none
		evicted bool   // if that is on
	}{
		"a pod of a controller": {boundWithout("p", own),
			`to node "n" without any, by another scheduler under the name "default-scheduler", or by a user who set ` +
				"spec.nodeName: its node starts no container of it; it is evicted, and its controller makes it again",
			true},
		"a pod without an owner": {boundWithout("p"), "delete it, and create it again without spec.nodeName", false},
		"a pod of a controller that runs": {
			boundWithout("p", own, func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning }),
			"it runs, and the devices that it may use can be given to other pods, too; delete it, and its controller",
			false,
		},
		"a pod that came later": {boundWithout("p", own, func(pod *v1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
		}), "delete it, and its controller makes it again", false},
		"a pod of another scheduler's": {boundWithout("p", func(pod *v1.Pod) { pod.Spec.SchedulerName = "other" }),
			`by another scheduler under the name "other", or`, false},
		"a static pod": {boundWithout("p", own, func(pod *v1.Pod) {
			pod.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
		}), "by the node itself: static pods get no devices; remove the request from its manifest", false},
		"a pod that is being deleted": {boundWithout("p", own, func(pod *v1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = ptr.To(metav1.Now()), []string{"example.com/wait"}
		}), "", false},
		"a pod with its devices": {controlled(annotated(boundWithout("p"), allocationOf("p", "n", "A"))), "", false},
		"a pod on no node":       {controlled(newPod("p", 1)), "", false},
	} {
		for _, evict := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, eviction %v", name, evict), func(t *testing.T) {
				nodes := []*v1.Node{newNode("n", "A")}
				f := newFixtureWith(t, Options{EvictUnallocated: evict}, &gpus{}, nodes, test.pod)
				f.answerEvictions(nil)
				f.plugin.noteLeading()
				for range 2 {
					f.plugin.checkUnallocated(t.Context())
				}
				texts := f.texts()
				want := test.event
				if !evict {
					want = strings.Replace(want, "it is evicted, and its", "delete it, and its", 1)
				}
				switch {
				case test.event == "" && len(texts) > 0:
					t.Errorf("events %q", texts)
				case test.event != "" && (len(texts) != 1 || !strings.Contains(texts[0], want) ||
					!strings.HasPrefix(texts[0], "Warning BoundWithoutDevices the pod requests devices and was bound")):
					t.Errorf("events %q, want one with %q", texts, want)
				}
				if got, want := unallocatedCount(t), len(texts); got != want {
					t.Errorf("%d pods are counted, want %d", got, want)
				}
				var wantEvicted []string
				if test.evicted && evict {
					wantEvicted = []string{"p", "p"} // in each round until it is gone
				}
				if diff := cmp.Diff(wantEvicted, f.evicted()); diff != "" {
					t.Errorf("evictions (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Many pods were bound without devices, and a disruption budget guards them for a while.
func TestPodsThatWereBoundWithoutDevicesAreReportedInRoundsAndCountedUntilTheyAreGone(t *testing.T) {
	var bound []*v1.Pod
	for i := range 2*maxReports + 5 {
		bound = append(bound, boundWithout(fmt.Sprintf("p%02d", i), func(pod *v1.Pod) { controlled(pod) }))
	}
	f := newFixtureWith(t, Options{EvictUnallocated: true}, &gpus{}, []*v1.Node{newNode("n", "A")}, bound...)
	f.answerEvictions(errors.New("a budget forbids it"))
	f.plugin.noteLeading()
	for round, want := range []int{maxReports, maxReports, 5, 0} {
		f.plugin.checkUnallocated(t.Context())
		texts := f.texts()
		if len(texts) != want {
			t.Errorf("round %d: %d events, want %d", round, len(texts), want)
		}
		if got, want := len(f.evicted()), (round+1)*maxReports; got != want {
			t.Errorf("round %d: %d pods are to be evicted so far, want %d", round, got, want)
		}
		if got := unallocatedCount(t); got != len(bound) {
			t.Errorf("round %d: %d pods are counted, want %d", round, got, len(bound))
		}
	}
	for _, pod := range bound[1:] {
		f.delete(pod)
	}
	await(t, "the pods are gone", func() bool {
		f.plugin.checkUnallocated(t.Context())
		return unallocatedCount(t) == 1
	})
	if texts := f.texts(); len(texts) > 0 {
		t.Errorf("events %q", texts)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// For 200 pods, one after another on random clusters, upstream's scheduler with the plugin does
// what fit predicts: it allocates the same devices, or refuses with the same text.
func TestFitPredictsTheScheduler(t *testing.T) {
	const clusters, podsEach = 20, 10
	same := 0
	for seed := range uint64(clusters) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var objects []runtime.Object
			for i := range 2 + random.IntN(4) {
				m := machine{
					name: fmt.Sprintf("n%d", i), pairs: 1 + random.IntN(3), cpu: 3 + random.Int64N(6),
					zone: string("ab"[random.IntN(2)]), tainted: random.IntN(6) == 0,
				}
				objects = append(objects, m.node())
			}
			f := newFixture(t, objects...)
			f.scheduler.SchedulingQueue.Run(klog.Logger{})
			t.Cleanup(f.scheduler.SchedulingQueue.Close)
			if f.scheduler.APIDispatcher != nil {
				f.scheduler.APIDispatcher.Run(klog.Logger{})
				t.Cleanup(f.scheduler.APIDispatcher.Close)
			}
			var bound []string
			for i := range podsEach {
				r := gpuRequest{cpu: random.Int64N(3)}
				switch random.IntN(4) {
				case 0:
					r.pairs = 1 + random.IntN(2)
				case 1: // no device
				default:
					r.count = 1 + random.IntN(3)
				}
				if random.IntN(3) == 0 {
					r.zone = string("ab"[random.IntN(2)])
				}
				pod := newPod(fmt.Sprintf("p%d", i), r)
				if f.fitAgrees(pod) {
					bound = append(bound, pod.Name)
				}
				same++
				if len(bound) > 0 && random.IntN(3) == 0 { // room for others
					index := random.IntN(len(bound))
					f.delete(bound[index])
					bound = slices.Delete(bound, index, index+1)
				}
			}
		})
	}
	if same != clusters*podsEach {
		t.Errorf("fit and the scheduler were compared for %d pods, want %d", same, clusters*podsEach)
	}
}

// fitAgrees compares fit with the scheduler's decision, and reports whether the pod is bound. It
// deletes a pod that is not.
func (f *fixture) fitAgrees(pod *v1.Pod) (bound bool) {
	f.Helper()
	request := schedulerapi.FitRequest{
		Namespace: pod.Namespace,
		Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Annotations: pod.Annotations}, Spec: pod.Spec,
		},
	}
	said, err := f.engine.Fit(f.Context(), request)
	if err != nil {
		f.Fatal(err)
	}
	// The scheduler takes one of several equally good nodes: fit lists each of them.
	answers := map[string]schedulerapi.Placement{}
	if said.Fits {
		equal := append([]string{said.Pods[0].Node}, said.Pods[0].EquallyGood...)
		for _, node := range equal {
			var others []schedulerapi.Change
			for _, other := range equal {
				if other != node {
					others = append(others, schedulerapi.Change{Cordon: other})
				}
			}
			one, err := f.engine.WhatIf(f.Context(), schedulerapi.WhatIfRequest{FitRequest: request, Changes: others})
			if err != nil || !one.Fits || len(one.Pods[0].EquallyGood) > 0 {
				f.Fatalf("pod %s fits %v, but not %s alone: %+v, %v", pod.Name, equal, node, one, err)
			}
			answers[node] = one.Pods[0]
		}
	}
	created, err := f.client.CoreV1().Pods(pod.Namespace).Create(f.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.await("pod "+pod.Name+" is queued", func() bool {
		pending, _ := f.scheduler.SchedulingQueue.PendingPods()
		return len(pending) == 1
	})
	if said, best := slices.Sorted(maps.Keys(answers)), f.best(created); !slices.Equal(said, best) {
		f.Errorf("pod %s: fit says %v are equally good; the scheduler's scores are highest on %v", pod.Name, said, best)
	}
	f.scheduler.ScheduleOne(f.Context())
	var message string
	f.await("pod "+pod.Name+" is bound or refused", func() bool {
		created, err = f.engine.pods.Pods(pod.Namespace).Get(pod.Name)
		if err != nil {
			return false
		}
		for _, condition := range created.Status.Conditions {
			if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
				message = condition.Message
			}
		}
		return created.Spec.NodeName != "" || message != ""
	})
	switch answer, meant := answers[created.Spec.NodeName]; {
	case said.Fits && (created.Spec.NodeName == "" || !meant):
		f.Errorf("pod %s: fit says %+v; the scheduler takes %q (%s)", pod.Name, said.Pods, created.Spec.NodeName,
			message)
	case said.Fits:
		var got []schedulerapi.ContainerDevices
		if allocation, err := deviceinfo.PodAllocation(created); err == nil {
			got = containers(allocation)
		}
		if !reflect.DeepEqual(got, answer.Containers) {
			f.Errorf("pod %s on %s: fit says %+v; it got %+v", pod.Name, created.Spec.NodeName, answer.Containers,
				got)
		}
	case created.Spec.NodeName != "":
		f.Errorf("pod %s: fit says %+v; it is on %s", pod.Name, said.Why, created.Spec.NodeName)
	default:
		for _, reason := range said.Why.Reasons {
			if !strings.Contains(message, reason.Text) {
				f.Errorf("pod %s: fit says %q; the event says %q", pod.Name, reason.Text, message)
			}
		}
		f.delete(pod.Name)
	}
	return created.Spec.NodeName != ""
}

// best returns the nodes with the highest score in the scheduler's own snapshot, sorted; none if
// the pod fits no node.
func (f *fixture) best(pod *v1.Pod) (names []string) {
	f.Helper()
	profile := f.scheduler.Profiles[pod.Spec.SchedulerName]
	snapshot := profile.SnapshotSharedLister().(*internalcache.Snapshot)
	if err := f.scheduler.Cache.UpdateSnapshot(klog.Logger{}, snapshot); err != nil {
		f.Fatal(err)
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		f.Fatal(err)
	}
	state := framework.NewCycleState()
	if _, status, _ := profile.RunPreFilterPlugins(f.Context(), state, pod); !status.IsSuccess() {
		return nil
	}
	var fit []fwk.NodeInfo
	for _, node := range nodes {
		if profile.RunFilterPluginsWithNominatedPods(f.Context(), state, pod, node).IsSuccess() {
			fit = append(fit, node)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	if status := profile.RunPreScorePlugins(f.Context(), state, pod, fit); !status.IsSuccess() {
		f.Fatal(status)
	}
	scores, status := profile.RunScorePlugins(f.Context(), state, pod, fit)
	if !status.IsSuccess() {
		f.Fatal(status)
	}
	var highest int64
	for _, score := range scores {
		highest = max(highest, score.TotalScore)
	}
	for _, score := range scores {
		if score.TotalScore == highest {
			names = append(names, score.Name)
		}
	}
	slices.Sort(names)
	return names
}

// delete deletes a pod, and waits until the scheduler has seen it.
func (f *fixture) delete(name string) {
	f.Helper()
	uid := name
	if err := f.client.CoreV1().Pods("default").Delete(f.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.Fatal(err)
	}
	f.await("pod "+name+" is gone", func() bool {
		dump := f.scheduler.Cache.Dump()
		for _, node := range dump.Nodes {
			for _, pod := range node.Pods {
				if string(pod.GetPod().UID) == uid {
					return false
				}
			}
		}
		_, err := f.engine.pods.Pods("default").Get(name)
		return err != nil
	})
}

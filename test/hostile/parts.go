// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
)

// Part is a part of what a pod costs.
type Part int

// The parts.
const (
	// Read is to read the pod's request, once for a pod.
	Read Part = iota
	// Fit is to filter a node.
	Fit
	// Score is to score a node.
	Score
	// Reserve is to choose devices on a node and to write them.
	Reserve
	// Hint is the longest of the queueing hints.
	Hint
	// Preempt is to find out which pods of a node must go, once for a node.
	Preempt

	parts
)

// String returns the part's name.
func (p Part) String() string {
	return [parts]string{"read", "fit", "score", "reserve", "hint", "preempt"}[p]
}

// Cost is what a pod costs, by part.
type Cost [parts]time.Duration

// Result is a measurement.
type Result struct {
	Cost
	Status string // why the pod does not fit a node; empty for one that does
}

// Measure returns what a pod of the shape costs on the first node: of several measurements of each
// part the least, since other work of the machine only adds to it.
func (b *Bench) Measure(ctx context.Context, pod *corev1.Pod, times int) (Result, error) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // without logs
	var least Result
	for i := range times {
		s, err := b.begin(ctx)
		if err != nil {
			return Result{}, err
		}
		got := s.measure(ctx, pod)
		s.stop()
		if i == 0 {
			least = got
			continue
		}
		for part := range got.Cost {
			least.Cost[part] = min(least.Cost[part], got.Cost[part])
		}
	}
	return least, nil
}

// measure runs one cycle of a pod on the first node.
func (s *scheduler) measure(ctx context.Context, pod *corev1.Pod) (got Result) {
	release := holdGarbage()
	defer release()
	timed := func(part Part, do func()) {
		began := cpu()
		do()
		got.Cost[part] = max(got.Cost[part], cpu()-began)
	}
	state := framework.NewCycleState()
	node := s.nodes[0]
	hints := func() {
		for _, event := range []func() (fwk.QueueingHint, error){
			func() (fwk.QueueingHint, error) { return s.hints[0](klog.Logger{}, pod, nil, node.Node()) },
			func() (fwk.QueueingHint, error) { return s.hints[1](klog.Logger{}, pod, s.gone(), nil) },
		} {
			timed(Hint, func() {
				if _, err := event(); err != nil {
					panic(err)
				}
			})
		}
	}
	hints() // of a pod that the scheduler has not seen
	var status *fwk.Status
	timed(Read, func() { _, status = s.plugin.PreFilter(ctx, state, pod, s.nodes) })
	if status != nil {
		got.Status = status.Message()
		return got
	}
	timed(Fit, func() { status = s.plugin.Filter(ctx, state, pod, node) })
	hints()
	if len(s.bench.victims) > 0 {
		timed(Preempt, func() { s.preempt(ctx, state, pod, node) })
	}
	if !status.IsSuccess() {
		got.Status = status.Message()
		return got
	}
	timed(Score, func() {
		s.plugin.PreScore(ctx, state, pod, s.nodes[:1])
		s.plugin.NormalizeScore(ctx, state, pod, fwk.NodeScoreList{{Name: node.Node().Name}})
	})
	timed(Reserve, func() { status = s.plugin.Reserve(ctx, state, pod, node.Node().Name) })
	if !status.IsSuccess() {
		got.Status = status.Message()
	}
	return got
}

// Cycle is what a pod costs in one scheduling cycle.
type Cycle struct {
	// Ours is what our plugin costs on all nodes.
	Ours time.Duration
	// Upstream is what upstream's plugin for resources costs for the same pod on the same nodes.
	Upstream time.Duration
	// Searched says of how many nodes there is an answer.
	Searched int
}

// MeasureCycle returns what a pod costs in one scheduling cycle on all nodes, for a scheduler that
// has no answer in its caches. Nodes are filtered one after the other, so that none is begun when
// the budget is used up.
func (b *Bench) MeasureCycle(ctx context.Context, pod *corev1.Pod) (got Cycle, err error) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // without logs
	s, err := b.begin(ctx)
	if err != nil {
		return Cycle{}, err
	}
	defer s.stop()
	release := holdGarbage()
	defer release()
	if _, err := s.cycle(ctx, s.plugin, First(b.machine).Pod("first")); err != nil { // what nodes cost once
		return Cycle{}, err
	}
	began := cpu()
	if got.Searched, err = s.cycle(ctx, s.plugin, pod); err != nil {
		return Cycle{}, err
	}
	got.Ours = cpu() - began
	began = cpu()
	if _, err = s.cycle(ctx, s.upstream, pod); err != nil {
		return Cycle{}, err
	}
	got.Upstream = cpu() - began
	return got, nil
}

// filters are the extension points that a cycle passes for each pod.
type filters interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

// cycle runs a pod's cycle up to the scores, and returns how many nodes gave an answer.
func (s *scheduler) cycle(ctx context.Context, plugin filters, pod *corev1.Pod) (searched int, err error) {
	state := framework.NewCycleState()
	if _, status := plugin.PreFilter(ctx, state, pod, s.nodes); !status.IsSuccess() {
		return len(s.nodes), nil
	}
	var fitting []fwk.NodeInfo
	for _, node := range s.nodes {
		status := plugin.Filter(ctx, state, pod, node)
		if status.IsSuccess() {
			fitting = append(fitting, node)
		}
		if !strings.Contains(status.Message(), "were not searched") {
			searched++
		}
	}
	if ours, ok := plugin.(*frameworkplugin.Plugin); ok && len(fitting) > 0 {
		if status := ours.PreScore(ctx, state, pod, fitting); !status.IsSuccess() {
			return 0, status.AsError()
		}
		scores := make(fwk.NodeScoreList, len(fitting))
		if status := ours.NormalizeScore(ctx, state, pod, scores); !status.IsSuccess() {
			return 0, status.AsError()
		}
	}
	return searched, nil
}

// Work is what one node costs, counted: it is the same on every machine.
type Work struct {
	Steps       int64 // of searches, as budgets count them
	Allocations int64 // of memory
	Bytes       int64
	Refused     string // why the pod was refused before it came to any node
}

// CountWork returns what the first node costs for a pod.
func (b *Bench) CountWork(ctx context.Context, pod *corev1.Pod) (work Work, err error) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // without logs
	s, err := b.begin(ctx)
	if err != nil {
		return Work{}, err
	}
	defer s.stop()
	release := holdGarbage()
	defer release()
	request, err := s.plugin.Nodes().Requests.Read(pod)
	if err != nil {
		return Work{Refused: err.Error()}, nil
	}
	if request == nil { // for the plugin the pod does not exist
		return Work{}, nil
	}
	node, err := s.plugin.Nodes().State(ctx, s.nodes[0], pod, true)
	if err != nil {
		return Work{}, err
	}
	budget := s.set.BeginCycle(request)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := s.set.FitWithin(ctx, node, request, budget); err != nil {
		work.Refused = err.Error()
	}
	runtime.ReadMemStats(&after)
	work.Steps = budget.Spent()
	work.Allocations = int64(after.Mallocs - before.Mallocs)
	work.Bytes = int64(after.TotalAlloc - before.TotalAlloc)
	return work, nil
}

// preempt does for a node what upstream's DefaultPreemption does: it removes all pods, and brings
// back one after the other as long as the pod fits.
func (s *scheduler) preempt(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) {
	_, status := s.plugin.PostFilter(ctx, state, pod, framework.NewDefaultNodeToStatus())
	if status.Code() == fwk.UnschedulableAndUnresolvable || status.Code() == fwk.Error {
		return
	}
	changed, clone := node.Snapshot(), state.Clone()
	var victims []fwk.PodInfo
	victims = append(victims, changed.GetPods()...)
	extensions := s.plugin.PreFilterExtensions()
	for _, victim := range victims {
		if err := changed.RemovePod(klog.Logger{}, victim.GetPod()); err != nil {
			panic(fmt.Sprint("remove a pod from a node: ", err))
		}
		if extensions != nil && !extensions.RemovePod(ctx, clone, pod, victim, changed).IsSuccess() {
			return
		}
	}
	if !s.plugin.Filter(ctx, clone, pod, changed).IsSuccess() {
		return
	}
	for _, victim := range victims {
		changed.AddPodInfo(victim)
		if extensions != nil && !extensions.AddPod(ctx, clone, pod, victim, changed).IsSuccess() {
			return
		}
		if s.plugin.Filter(ctx, clone, pod, changed).IsSuccess() {
			continue
		}
		if err := changed.RemovePod(klog.Logger{}, victim.GetPod()); err != nil {
			panic(fmt.Sprint("remove a pod from a node: ", err))
		}
	}
}

// gone returns a pod that held devices of the first node and is deleted.
func (s *scheduler) gone() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.UID = "gone", "gone"
	pod.Annotations = map[string]string{deviceinfo.Annotation: "{}"}
	pod.Spec.NodeName = s.nodes[0].Node().Name
	return pod
}

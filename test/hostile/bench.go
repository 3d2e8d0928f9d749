// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	upstreammetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	schedulertesting "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// Bench is a cluster of nodes of one machine. One goroutine at a time may use it.
type Bench struct {
	machine Machine
	client  *fake.Clientset
	nodes   []*corev1.Node
	victims []*corev1.Pod
	steps   bool
}

// NewBench returns a cluster of this many nodes, each in a state of its own, with so many pods on
// each of them that can be evicted. Where stepsOnly is set, no answer depends on the clock.
func NewBench(machine Machine, nodes, victims int, stepsOnly bool) (*Bench, error) {
	b := &Bench{machine: machine, client: fake.NewClientset(), steps: stepsOnly}
	for i := range nodes {
		node, err := machine.Node(fmt.Sprintf("n%04d", i), i)
		if err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, node)
		if err := b.client.Tracker().Add(node); err != nil {
			return nil, err
		}
		for v := range victims {
			pod, err := machine.victim(node.Name, v)
			if err != nil {
				return nil, err
			}
			b.victims = append(b.victims, pod)
			if err := b.client.Tracker().Add(pod); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// scheduler is one that has seen no pod of the shape yet.
type scheduler struct {
	bench     *Bench
	set       *allocation.Set
	framework framework.Framework
	plugin    *frameworkplugin.Plugin
	upstream  filters // upstream's plugin for resources
	nodes     []fwk.NodeInfo
	hints     []fwk.QueueingHintFn
	stop      func()
}

// begin returns a scheduler that knows the nodes and has no answers in its caches.
func (b *Bench) begin(ctx context.Context) (*scheduler, error) {
	upstreammetrics.Register()
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	s := &scheduler{bench: b, set: allocation.New(klog.Logger{}, nil,
		allocation.Named{File: "built in", Plugin: kubeletplugin.New()},
		allocation.Named{File: "gpus.so", Plugin: gpuscheduler.New("gpus", gpu.Resource)})}
	budgets := allocation.DefaultSearchBudgets
	budgets.StepsOnly = b.steps
	s.set.SetSearchBudgets(budgets)
	factory := informers.NewSharedInformerFactory(b.client, 0)
	ours := func(ctx context.Context, _ apiruntime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		shared, err := frameworkplugin.NewShared(ctx, s.set, handle, frameworkplugin.Options{})
		if err != nil {
			return nil, err
		}
		s.plugin = frameworkplugin.New(handle, shared)
		return s.plugin, nil
	}
	fit := func(ctx context.Context, _ apiruntime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := noderesources.NewFit(ctx, &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{
			Type: config.LeastAllocated, Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
		}}, handle, feature.Features{})
		if err != nil {
			return nil, err
		}
		s.upstream = plugin.(filters)
		return plugin, nil
	}
	snapshot := internalcache.NewSnapshot(b.victims, b.nodes)
	var err error
	s.framework, err = schedulertesting.NewFramework(ctx, []schedulertesting.RegisterPluginFunc{
		schedulertesting.RegisterQueueSortPlugin(queuesort.Name, queuesort.New),
		schedulertesting.RegisterPluginAsExtensions(frameworkplugin.Name, ours,
			"PreFilter", "Filter", "PostFilter", "PreScore", "Score", "Reserve", "Bind"),
		schedulertesting.RegisterPluginAsExtensions(names.NodeResourcesFit, fit, "PreFilter", "Filter"),
	}, corev1.DefaultSchedulerName,
		frameworkruntime.WithClientSet(b.client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot), frameworkruntime.WithPodNominator(inactive{}),
		frameworkruntime.WithPodActivator(inactive{}),
		frameworkruntime.WithEventRecorder(&events.FakeRecorder{}))
	if err != nil {
		cancel()
		return nil, err
	}
	s.stop = func() {
		s.framework.Close()
		cancel()
		factory.Shutdown()
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if s.nodes, err = snapshot.NodeInfos().List(); err != nil {
		s.stop()
		return nil, err
	}
	events, err := s.plugin.EventsToRegister(ctx)
	if err != nil {
		s.stop()
		return nil, err
	}
	for _, event := range events {
		s.hints = append(s.hints, event.QueueingHintFn)
	}
	s.settle()
	return s, nil
}

// inactive nominates no pods, and activates none.
type inactive struct{ fwk.PodNominator }

func (inactive) NominatedPodsForNode(string) []fwk.PodInfo    { return nil }
func (inactive) Activate(klog.Logger, map[string]*corev1.Pod) {}

// settle waits until nothing runs in the background: informers, and the collection of garbage.
func (s *scheduler) settle() {
	runtime.GC() //revive:disable-line:call-to-gc
	for quiet := 0; quiet < 2; {
		before := cpu()
		time.Sleep(2 * time.Millisecond)
		if quiet++; cpu()-before > 300*time.Microsecond {
			quiet = 0
		}
	}
}

// cpu returns the CPU time of the process.
func cpu() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// holdGarbage collects no garbage until the function that it returns is called.
func holdGarbage() (release func()) {
	percent := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(percent) }
}

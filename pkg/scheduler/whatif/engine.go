// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	kubedeviceconfig "github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/ledger"
)

// Profiles has the scheduler's configuration.
type Profiles interface {
	// Profiles returns the profiles, with all defaults.
	Profiles() ([]config.KubeSchedulerProfile, error)
}

// sleeper is the clock by which an engine rests.
type sleeper interface{ Sleep(time.Duration) }

// Engine answers questions. It is safe for concurrent use; it answers one question at a time.
type Engine struct {
	ctx      context.Context // of the scheduler
	shared   *frameworkplugin.Shared
	handle   fwk.Handle
	profiles Profiles
	pods     corelisters.PodLister
	clock    sleeper
	slot     chan struct{} // holds one token while a question is answered
	made     atomic.Uint64 // pods made for questions

	// Only the holder of the slot uses the rest.

	serving  map[string]*profile // by scheduler name; nil before the first question
	snapshot current
}

// profile answers for the pods with one scheduler name.
type profile struct {
	framework framework.Framework
	devices   *frameworkplugin.WhatIf // nil if the profile lacks the plugin
}

// New returns the engine of a scheduler. handle belongs to one of its profiles: the engine reads
// the objects of its informers and the nominated pods of its queue. ctx is the scheduler's.
func New(ctx context.Context, shared *frameworkplugin.Shared, handle fwk.Handle, profiles Profiles) *Engine {
	return &Engine{
		ctx: ctx, shared: shared, handle: handle, profiles: profiles,
		pods:  handle.SharedInformerFactory().Core().V1().Pods().Lister(),
		clock: clock.RealClock{}, slot: make(chan struct{}, 1),
	}
}

// throttle sleeps after this much work. Questions take a hundredth of one core while the scheduler
// schedules pods, and half of it otherwise. A rest ends early when no pod is left to schedule.
func (e *Engine) throttle(worked time.Duration) {
	e.clock.Sleep(idleFactor * worked)
	for part := 0; part < busyPauses && e.shared.Scheduling(); part++ {
		e.clock.Sleep(busyFactor / busyPauses * worked)
	}
}

// begin waits for the engine's slot, until ctx ends, and makes the frameworks for the first
// question. The caller calls end when it has its answer, unless there is an error.
func (e *Engine) begin(ctx context.Context) (end func(), err error) {
	if !e.shared.Synced() {
		return nil, apierrors.NewServiceUnavailable("the scheduler does not know all nodes and pods yet: retry " +
			"in a second")
	}
	select {
	case e.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, apierrors.NewTooManyRequests("the scheduler answers other questions: retry in a second", 1)
	}
	end = func() { <-e.slot }
	defer func() { // after a panic too
		if e.serving == nil {
			end()
		}
	}()
	if e.serving == nil {
		if err := e.serve(); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("make the frameworks for questions: %w", err))
		}
	}
	return end, nil
}

// serve makes the frameworks.
func (e *Engine) serve() error {
	configured, err := e.profiles.Profiles()
	if err != nil {
		return err
	}
	e.snapshot.now.Store(internalcache.NewEmptySnapshot())
	ctx := klog.NewContext(e.ctx, klog.Logger{}) // questions stay out of the scheduler's log
	serving := map[string]*profile{}
	for i := range configured {
		made, err := e.newProfile(ctx, configured[i].DeepCopy())
		if err != nil {
			return fmt.Errorf("profile %q: %w", configured[i].SchedulerName, err)
		}
		serving[configured[i].SchedulerName] = made
	}
	e.serving = serving
	e.shared.Run(func(ctx context.Context) {
		<-ctx.Done()
		for _, made := range serving {
			_ = made.framework.Close()
		}
	})
	return nil
}

// metricsSuffix separates the cycles of questions from those of pods in upstream's metrics, which
// have the profile's name.
const metricsSuffix = "/what-if"

func (e *Engine) newProfile(ctx context.Context, configured *config.KubeSchedulerProfile) (*profile, error) {
	made := &profile{}
	registry := maps.Clone(plugins.NewInTreeRegistry())
	registry[frameworkplugin.Name] = func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		made.devices = e.shared.WhatIf(handle)
		return made.devices, nil
	}
	arguments, levels := claims.ArgsIn(configured), *kubedeviceconfig.Of(configured).ClaimLevels
	registry[claims.Name] = func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return claims.New(ctx, arguments, levels, handle, ledger.Reader{Ledger: e.shared.Ledger()})
	}
	configured.SchedulerName += metricsSuffix
	preempts := func(plugin config.Plugin) bool { return plugin.Name == names.DefaultPreemption }
	for _, set := range []*config.PluginSet{&configured.Plugins.MultiPoint, &configured.Plugins.PostFilter} {
		set.Enabled = slices.DeleteFunc(set.Enabled, preempts)
	}
	var err error
	made.framework, err = frameworkruntime.NewFramework(ctx, registry, configured,
		frameworkruntime.WithClientSet(e.handle.ClientSet()),
		frameworkruntime.WithKubeConfig(e.handle.KubeConfig()),
		frameworkruntime.WithInformerFactory(e.handle.SharedInformerFactory()),
		frameworkruntime.WithSharedDRAManager(e.handle.SharedDRAManager()),
		frameworkruntime.WithSharedCSIManager(e.handle.SharedCSIManager()),
		frameworkruntime.WithPodGroupManager(e.handle.PodGroupManager()),
		frameworkruntime.WithSnapshotSharedLister(&e.snapshot),
		frameworkruntime.WithPodNominator(nominated{nominator: e.handle}),
		frameworkruntime.WithPodActivator(noop{}),
		frameworkruntime.WithEventRecorder(noop{}),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	return made, nil
}

// current is the snapshot of the current question.
type current struct {
	now atomic.Pointer[internalcache.Snapshot]
}

func (c *current) NodeInfos() fwk.NodeInfoLister           { return c.now.Load().NodeInfos() }
func (c *current) StorageInfos() fwk.StorageInfoLister     { return c.now.Load().StorageInfos() }
func (c *current) PodGroupStates() fwk.PodGroupStateLister { return c.now.Load().PodGroupStates() }
func (c *current) PodGroups() fwk.PodGroupLister           { return c.now.Load().PodGroups() }
func (c *current) CompositePodGroups() fwk.CompositePodGroupLister {
	return c.now.Load().CompositePodGroups()
}
func (c *current) CompositePodGroupStates() fwk.CompositePodGroupStateLister {
	return c.now.Load().CompositePodGroupStates()
}

// nominated reads the nominated pods of the scheduler's queue, and nominates no pod.
type nominated struct{ nominator fwk.PodNominator }

func (n nominated) NominatedPodsForNode(name string) []fwk.PodInfo {
	return n.nominator.NominatedPodsForNode(name)
}
func (nominated) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nominated) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (nominated) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}

// noop activates no pods and drops events.
type noop struct{}

func (noop) Activate(klog.Logger, map[string]*v1.Pod) {}
func (noop) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
}
func (n noop) WithLogger(klog.Logger) events.EventRecorderLogger { return n }

// madeUpPrefix begins the UIDs of pods that exist in a question alone.
const madeUpPrefix = "what-if/"

// uid returns a UID that no pod has.
func (e *Engine) uid() string { return madeUpPrefix + strconv.FormatUint(e.made.Add(1), 10) }

// madeUp reports whether a pod exists in a question alone.
func madeUp(pod *v1.Pod) bool { return strings.HasPrefix(string(pod.UID), madeUpPrefix) }

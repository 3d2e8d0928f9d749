// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	upstreammetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	schedulertesting "k8s.io/kubernetes/pkg/scheduler/testing/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) {
	pluginload.MaybeChild()
	goleak.VerifyTestMain(m)
}

// gpus is a plugin that leaves GPUs to the group scheduler: nvidia.com/gpu of each container
// becomes as many cards, and what the annotation requests of pairs stays as it is.
type gpus struct {
	panics, whimsical bool
	calls             atomic.Int64 // calls of PodFitsDevice
}

func (*gpus) AddNode(string, *sdk.NodeInfo) {}
func (*gpus) RemoveNode(string)             {}
func (g *gpus) PodFitsDevice(_ *sdk.NodeInfo, pod *sdk.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	g.calls.Add(1)
	if g.panics {
		panic("ouch")
	}
	for name, container := range pod.RunningContainers {
		container.DevRequests = sdk.ResourceList{}
		for i := range container.KubeRequests["nvidia.com/gpu"] {
			sdk.AddGroupResource(container.DevRequests, fmt.Sprintf("gpu/%d/cards", i), 1)
		}
		for request, quantity := range container.Requests {
			if strings.HasPrefix(string(request), "pair/") {
				sdk.AddGroupResource(container.DevRequests, string(request), quantity)
			}
		}
		pod.RunningContainers[name] = container
	}
	return true, nil, 0
}
func (g *gpus) PodAllocate(node *sdk.NodeInfo, pod *sdk.PodInfo) error {
	g.PodFitsDevice(node, pod, true)
	return nil
}
func (*gpus) TakePodResources(*sdk.NodeInfo, *sdk.PodInfo) error   { return nil }
func (*gpus) ReturnPodResources(*sdk.NodeInfo, *sdk.PodInfo) error { return nil }
func (*gpus) GetName() string                                      { return "gpus" }
func (g *gpus) Pure() bool                                         { return !g.whimsical }
func (*gpus) Words() devicescheduler.Words {
	return devicescheduler.Words{Levels: map[string]devicescheduler.Noun{"gpu": {One: "GPU", Many: "GPUs"},
		"pair": {One: "NVLink pair", Many: "NVLink pairs"}}}
}
func (*gpus) UsingGroupScheduler() bool { return true }

// fixture is the plugin in a real framework, on a snapshot that the test makes, with a client that
// remembers bindings.
type fixture struct {
	testing.TB
	schedulers *gpus
	client     *fake.Clientset
	framework  framework.Framework
	plugin     *Plugin
	clock      *clocktesting.FakeClock
	activated  chan map[string]*v1.Pod
	events     *events.FakeRecorder

	bindingError atomic.Pointer[error]
}

// Activate is what the scheduling queue would be asked to do.
func (f *fixture) Activate(_ klog.Logger, pods map[string]*v1.Pod) { f.activated <- pods }

// newFixture returns a fixture whose snapshot has these nodes and pods, and whose informers have
// these nodes, and the pods too.
func newFixture(t testing.TB, nodes []*v1.Node, pods ...*v1.Pod) *fixture {
	plugin := &gpus{}
	f := newFixtureOf(t, plugin, nodes, pods...)
	f.schedulers = plugin
	return f
}

// newFixtureOf is newFixture with another device scheduler.
func newFixtureOf(t testing.TB, scheduler devicescheduler.DeviceScheduler, nodes []*v1.Node, pods ...*v1.Pod) *fixture {
	return newFixtureWith(t, Options{}, scheduler, nodes, pods...)
}

// newFixtureWith is newFixtureOf with options.
func newFixtureWith(
	t testing.TB, options Options, scheduler devicescheduler.DeviceScheduler, nodes []*v1.Node, pods ...*v1.Pod,
) *fixture {
	return newFixtureAmong(t, nil, options, scheduler, nodes, pods...)
}

// newFixtureAmong is newFixtureWith in a cluster with these claims; nil for none.
func newFixtureAmong(
	t testing.TB, claims fwk.SharedDRAManager, options Options, scheduler devicescheduler.DeviceScheduler,
	nodes []*v1.Node, pods ...*v1.Pod,
) *fixture {
	upstreammetrics.Register()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fixture{TB: t, client: fake.NewClientset(), activated: make(chan map[string]*v1.Pod, 1)}
	f.events = events.NewFakeRecorder(16)
	f.clock = clocktesting.NewFakeClock(metav1.Now().Time)
	f.client.PrependReactor("create", "pods", f.reactToBinding)
	for _, node := range nodes {
		if err := f.client.Tracker().Add(node); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range pods {
		if err := f.client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	schedulers := allocation.New(
		klog.Background(), metrics.NewRecorder(), allocation.Named{File: "gpus.so", Plugin: scheduler})
	budgets := allocation.DefaultSearchBudgets
	budgets.StepsOnly = true // the race detector makes a step take many times as long
	schedulers.SetSearchBudgets(budgets)
	factory := func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		shared, err := NewShared(ctx, schedulers, handle, options)
		if err != nil {
			return nil, err
		}
		f.plugin = New(handle, shared)
		return f.plugin, nil
	}
	informerFactory := informers.NewSharedInformerFactory(f.client, 0)
	var err error
	f.framework, err = schedulertesting.NewFramework(ctx, []schedulertesting.RegisterPluginFunc{
		schedulertesting.RegisterQueueSortPlugin(queuesort.Name, queuesort.New),
		schedulertesting.RegisterPluginAsExtensions(Name, factory, "PreFilter", "Filter", "PostFilter", "PreScore",
			"Score", "Reserve", "Permit", "Bind"),
	}, v1.DefaultSchedulerName, frameworkruntime.WithSharedDRAManager(claims),
		frameworkruntime.WithClientSet(f.client), frameworkruntime.WithInformerFactory(informerFactory),
		frameworkruntime.WithSnapshotSharedLister(internalcache.NewSnapshot(pods, nodes)),
		frameworkruntime.WithPodActivator(f),
		frameworkruntime.WithEventRecorder(f.events),
		frameworkruntime.WithPodNominator(noNominations{}))
	if err != nil {
		t.Fatal(err)
	}
	f.plugin.clock = f.clock
	f.plugin.requeuer.clock, f.plugin.retries.clock = f.clock, f.clock
	informerFactory.Start(ctx.Done())
	started := len(informerFactory.WaitForCacheSync(ctx.Done()))
	// The fake API server has no history: what changes between an informer's list and its watch is
	// never reported.
	await(t, "the informers watch", func() bool {
		watches := 0
		for _, action := range f.client.Actions() {
			if action.GetVerb() == "watch" {
				watches++
			}
		}
		return watches >= started
	})
	await(t, "the plugin knows the nodes", f.plugin.nodesSynced.HasSynced)
	t.Cleanup(func() {
		if err := f.framework.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		informerFactory.Shutdown()
	})
	return f
}

// noNominations nominates no pods.
type noNominations struct{ fwk.PodNominator }

func (noNominations) NominatedPodsForNode(string) []fwk.PodInfo { return nil }

// newNode returns a node with these GPUs.
func newNode(name string, gpus ...string) *v1.Node {
	info := sdk.NewNodeInfoWithName(name)
	info.Capacity["nvidia.com/gpu"] = int64(len(gpus))
	for _, gpu := range gpus {
		sdk.AddGroupResource(info.Allocatable, "gpu/"+gpu+"/cards", 1)
	}
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		panic(err)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), ResourceVersion: "1",
		Annotations: map[string]string{deviceinfo.Annotation: annotation},
	}}
}

// newPod returns a pod whose container main requests this many GPUs.
func newPod(name string, count int64) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(count),
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	if count > 0 {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(count,
			resource.DecimalSI)}
	}
	return pod
}

func annotated(pod *v1.Pod, annotation string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.ResourceVersion += annotation // it need not be a number
	pod.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	return pod
}

// assumed returns the pod as the scheduler's cache has it while it is being bound.
func assumed(pod *v1.Pod, nodeName string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = nodeName
	return pod
}

// allocationOf returns the annotation of a pod that was given one GPU of a node.
func allocationOf(podName, nodeName, gpu string) string {
	return fmt.Sprintf(
		`{"podname":%q,"nodename":%q,"runningcontainer":{"main":{`+
			`"devrequests":{"resource/group/gpu/0/cards":1},`+
			`"allocatefrom":{"resource/group/gpu/0/cards":"resource/group/gpu/%s/cards"}}}}`, podName, nodeName, gpu)
}

// nodes returns the nodes of the snapshot.
func (f *fixture) nodes() []fwk.NodeInfo {
	f.Helper()
	nodes, err := f.framework.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		f.Fatal(err)
	}
	return nodes
}

// fit runs a pod's cycle up to Filter on a node.
func (f *fixture) fit(pod *v1.Pod, nodeName string) (fwk.CycleState, *fwk.Status) {
	f.Helper()
	state := framework.NewCycleState()
	if _, status, _ := f.framework.RunPreFilterPlugins(f.Context(), state, pod); !status.IsSuccess() {
		return state, status
	}
	nodeInfo, err := f.framework.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		f.Fatal(err)
	}
	return state, f.framework.RunFilterPluginsWithNominatedPods(f.Context(), state, pod, nodeInfo)
}

// scores runs a pod's cycle from PreScore to the final scores of nodes that fit, which it returns
// in their order.
func (f *fixture) scores(state fwk.CycleState, pod *v1.Pod, nodes ...fwk.NodeInfo) []int64 {
	f.Helper()
	if status := f.framework.RunPreScorePlugins(f.Context(), state, pod, nodes); !status.IsSuccess() {
		f.Fatal(status)
	}
	given, status := f.framework.RunScorePlugins(f.Context(), state, pod, nodes)
	if !status.IsSuccess() {
		f.Fatal(status)
	}
	scores := make([]int64, len(given))
	for i := range given {
		scores[i] = given[i].TotalScore
	}
	return scores
}

// reserve runs a pod's cycle up to Reserve on a node, and fails the test when that does not work.
func (f *fixture) reserve(pod *v1.Pod, nodeName string) fwk.CycleState {
	f.Helper()
	state, status := f.fit(pod, nodeName)
	if status.IsSuccess() {
		status = f.framework.RunReservePluginsReserve(f.Context(), state, assumed(pod, nodeName), nodeName)
	}
	if !status.IsSuccess() {
		f.Fatalf("pod %s on %s: %v", pod.Name, nodeName, status)
	}
	return state
}

// bind runs the bind plugins, and Unreserve when that fails, as the scheduler does.
func (f *fixture) bind(state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	f.Helper()
	status := f.framework.RunBindPlugins(f.Context(), state, assumed(pod, nodeName), nodeName)
	if !status.IsSuccess() {
		f.framework.RunReservePluginsUnreserve(f.Context(), state, assumed(pod, nodeName), nodeName)
	}
	return status
}

// bindings returns the Bindings that the client was asked to create.
func (f *fixture) bindings() []*v1.Binding {
	var bindings []*v1.Binding
	for _, action := range f.client.Actions() {
		if create, ok := action.(clienttesting.CreateAction); ok && action.GetSubresource() == "binding" {
			bindings = append(bindings, create.GetObject().(*v1.Binding))
		}
	}
	return bindings
}

// bindingFails makes every binding fail with this error.
func (f *fixture) bindingFails(err error) { f.bindingError.Store(&err) }

func (f *fixture) reactToBinding(action clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	fails := f.bindingError.Load()
	if action.GetSubresource() != "binding" || fails == nil {
		return false, nil, nil
	}
	return true, nil, *fails
}

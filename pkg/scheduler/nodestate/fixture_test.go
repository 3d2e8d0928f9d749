// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gpus is a plugin that leaves GPUs to the group scheduler: nvidia.com/gpu of each container
// becomes as many cards.
type gpus struct {
	added, removed, taken atomic.Int64
	broken                atomic.Bool
	pure                  bool // from the beginning
}

func (g *gpus) AddNode(string, *sdk.NodeInfo) {
	g.added.Add(1)
	if g.broken.Load() {
		panic("ouch")
	}
}
func (g *gpus) RemoveNode(string) { g.removed.Add(1) }
func (g *gpus) PodFitsDevice(_ *sdk.NodeInfo, pod *sdk.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	for name, container := range pod.RunningContainers {
		for i := range container.KubeRequests["nvidia.com/gpu"] {
			if container.DevRequests == nil {
				container.DevRequests = sdk.ResourceList{}
			}
			resource.AddGroupResource(container.DevRequests, fmt.Sprintf("gpu/%d/cards", i), 1)
		}
		pod.RunningContainers[name] = container
	}
	return true, nil, 0
}
func (g *gpus) PodAllocate(node *sdk.NodeInfo, pod *sdk.PodInfo) error {
	g.PodFitsDevice(node, pod, true)
	return nil
}
func (g *gpus) TakePodResources(*sdk.NodeInfo, *sdk.PodInfo) error   { g.taken.Add(1); return nil }
func (g *gpus) ReturnPodResources(*sdk.NodeInfo, *sdk.PodInfo) error { return nil }
func (g *gpus) GetName() string                                      { return "gpus" }
func (g *gpus) UsingGroupScheduler() bool                            { return true }
func (g *gpus) Pure() bool                                           { return g.pure }

// fixture is a cache and what the informer has.
type fixture struct {
	*testing.T
	plugin  *gpus
	set     *allocation.Set
	indexer cache.Indexer
	clock   *clocktesting.FakeClock
	cache   *Cache
	version int
}

func newFixture(t *testing.T) *fixture { return newFixtureOf(t, &gpus{}) }

func newFixtureOf(t *testing.T, plugin *gpus) *fixture {
	f := &fixture{
		T: t, plugin: plugin,
		indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
		clock:   clocktesting.NewFakeClock(time.Unix(0, 0)),
	}
	f.set = allocation.New(klog.Background(), nil, allocation.Named{File: "gpus.so", Plugin: f.plugin})
	f.cache = New(f.set, corelisters.NewNodeLister(f.indexer), f.clock)
	return f
}

func (f *fixture) nextVersion() string {
	f.version++
	return fmt.Sprint(f.version)
}

// node puts a node with these GPUs into the informer, in place of the previous one, and
// notifies the cache.
func (f *fixture) node(name, uid string, gpus ...string) *v1.Node {
	f.Helper()
	info := sdk.NewNodeInfoWithName(name)
	info.Capacity["nvidia.com/gpu"] = int64(len(gpus))
	for _, gpu := range gpus {
		resource.AddGroupResource(info.Allocatable, "gpu/"+gpu+"/cards", 1)
	}
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		f.Fatal(err)
	}
	return f.annotatedNode(name, uid, annotation)
}

func (f *fixture) annotatedNode(name, uid, annotation string) *v1.Node {
	f.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: f.nextVersion()}}
	if annotation != "" {
		node.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	}
	if err := f.indexer.Update(node); err != nil {
		f.Fatal(err)
	}
	f.cache.Observe(f.Context(), node)
	return node
}

// deleteNode takes a node out of the informer and notifies the cache.
func (f *fixture) deleteNode(node *v1.Node) {
	f.Helper()
	if err := f.indexer.Delete(node); err != nil {
		f.Fatal(err)
	}
	f.cache.Forget(f.Context(), node)
}

// pod returns a pending pod that requests this many GPUs. Its UID is its name.
func (f *fixture) pod(name string, count int64) *v1.Pod {
	quantity := *apiresource.NewQuantity(count, apiresource.DecimalSI)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: f.nextVersion(),
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main",
			Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{"nvidia.com/gpu": quantity},
				Limits:   v1.ResourceList{"nvidia.com/gpu": quantity},
			},
		}}},
	}
}

// with returns a copy of a pod with an annotation.
func with(pod *v1.Pod, annotation string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	return pod
}

// allocated returns the annotation that gives a pod these GPUs of a node.
func allocated(podName, nodeName string, gpus ...string) string {
	info := sdk.NewContainerInfo()
	for i, gpu := range gpus {
		request := sdk.ResourceName(fmt.Sprintf("%s/gpu/%d/cards", sdk.DeviceGroupPrefix, i))
		info.DevRequests[request] = 1
		info.AllocateFrom[request] = sdk.ResourceName(fmt.Sprintf("%s/gpu/%s/cards", sdk.DeviceGroupPrefix, gpu))
	}
	annotation, err := deviceinfo.EncodePod(&sdk.PodInfo{Name: podName, NodeName: nodeName,
		RunningContainers: map[string]sdk.ContainerInfo{"main": *info}})
	if err != nil {
		panic(err)
	}
	return annotation
}

// assumed returns the pod as the scheduler's cache has it while it is being bound.
func assumed(pod *v1.Pod, nodeName string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = nodeName
	return pod
}

// bound returns the pod as the API server has it after a binding with an annotation.
func (f *fixture) bound(pod *v1.Pod, nodeName, annotation string) *v1.Pod {
	pod = assumed(with(pod, annotation), nodeName)
	pod.ResourceVersion = f.nextVersion()
	return pod
}

// nodeInfo returns a NodeInfo that lists these pods.
func nodeInfo(node *v1.Node, pods ...*v1.Pod) fwk.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(node)
	return info
}

// free returns which GPUs are free for a pod that is not on the node.
func (f *fixture) free(info fwk.NodeInfo) string {
	f.Helper()
	return f.freeFor(info, f.pod("probe", 1), true)
}

func (f *fixture) freeFor(info fwk.NodeInfo, pod *v1.Pod, unmodified bool) string {
	f.Helper()
	node, err := f.cache.State(f.Context(), info, pod, unmodified)
	if err != nil {
		return "error: " + err.Error()
	}
	return f.freeOn(node)
}

// freeOn returns which GPUs are free in a node's state.
func (f *fixture) freeOn(node *allocation.Node) string {
	f.Helper()
	for count := int64(7); count > 0; count-- { // no test has more
		request, err := f.cache.Requests.Read(f.pod("probe", count))
		if err != nil || request == nil {
			f.Fatalf("request %v, error %v", request, err)
		}
		allocated, err := f.set.Allocate(f.Context(), node, request)
		if err == nil {
			return strings.Join(devices(allocated), " ")
		}
		if errors.Is(err, pluginhost.ErrNoAnswer) {
			f.Fatal(err)
		}
	}
	return "none"
}

// devices returns the GPUs of an allocation, sorted.
func devices(allocated *sdk.PodInfo) []string {
	var gpus []string
	for _, container := range allocated.RunningContainers {
		for _, from := range container.AllocateFrom {
			gpus = append(gpus, strings.Split(string(from), "/")[3])
		}
	}
	slices.Sort(gpus)
	return gpus
}

// reserve places a pod on a node as the plugin does and returns its annotation.
func (f *fixture) reserve(info fwk.NodeInfo, pod *v1.Pod) (string, error) {
	f.Helper()
	node, _, err := f.cache.LatestState(f.Context(), info, pod)
	if err != nil {
		return "", err
	}
	request, err := f.cache.Requests.Read(pod)
	if err != nil {
		return "", err
	}
	allocated, err := f.set.Allocate(f.Context(), node, request)
	if err != nil {
		return "", err
	}
	annotation, err := deviceinfo.EncodePod(allocated)
	if err != nil {
		f.Fatal(err)
	}
	f.cache.Reserve(info.Node().Name, pod, allocation.NewHolder(string(pod.UID), allocated, request.Containers),
		annotation)
	return annotation, nil
}

func (f *fixture) mustReserve(info fwk.NodeInfo, pod *v1.Pod) string {
	f.Helper()
	annotation, err := f.reserve(info, pod)
	if err != nil {
		f.Fatal(err)
	}
	return annotation
}

func (f *fixture) want(what, got, want string) {
	f.Helper()
	if got != want {
		f.Errorf("%s: got %q, want %q", what, got, want)
	}
}

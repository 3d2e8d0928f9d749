// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// groups is a plugin that delegates all to the group scheduler.
type groups struct{}

func (groups) AddNode(string, *sdk.NodeInfo) {}
func (groups) RemoveNode(string)             {}
func (groups) PodFitsDevice(_ *sdk.NodeInfo, pod *sdk.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	for name, container := range pod.RunningContainers {
		for request, quantity := range container.Requests {
			if container.DevRequests == nil {
				container.DevRequests = sdk.ResourceList{}
			}
			resource.AddGroupResource(container.DevRequests, string(request), quantity)
		}
		pod.RunningContainers[name] = container
	}
	return true, nil, 0
}
func (g groups) PodAllocate(node *sdk.NodeInfo, pod *sdk.PodInfo) error {
	g.PodFitsDevice(node, pod, true)
	return nil
}
func (groups) TakePodResources(*sdk.NodeInfo, *sdk.PodInfo) error   { return nil }
func (groups) ReturnPodResources(*sdk.NodeInfo, *sdk.PodInfo) error { return nil }
func (groups) GetName() string                                      { return "groups" }
func (groups) UsingGroupScheduler() bool                            { return true }

// fixture is an engine with a node n, as the informers and the API server have it.
type fixture struct {
	*testing.T
	engine    *Engine
	nodes     cache.Indexer
	pods      []*v1.Pod
	client    *fake.Clientset
	events    *events.FakeRecorder
	leads     bool
	version   int
	unhealthy map[string]bool

	lose     func(applied func()) error // decides the outcome of the next patch; nil for success
	patching func()                     // is called before each patch takes effect, unless it is nil
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{
		T: t, leads: true, unhealthy: map[string]bool{}, client: fake.NewClientset(),
		events: events.NewFakeRecorder(100),
		nodes:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
	}
	lister := corelisters.NewNodeLister(f.nodes)
	set := allocation.New(klog.Background(), nil, allocation.Named{File: "groups.so", Plugin: groups{}})
	text, err := seal.EncodePrivateKeys([]ed25519.PrivateKey{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))})
	path := filepath.Join(t.TempDir(), "keys.pem")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.OpenPrivateKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	states := nodestate.New(set, lister, clocktesting.NewFakeClock(time.Unix(0, 0)))
	states.Enforce(keys.Verifier())
	f.engine = New(Options{
		Schedulers: set, Nodes: states, NodeLister: lister, Client: f.client, Keys: keys, Recorder: f.events,
		Pods: f, Leadership: f,
	})
	t.Cleanup(f.engine.queue.ShutDown)
	f.client.PrependReactor("patch", "pods", f.patch)
	f.node()
	return f
}

// PodsOn implements Pods.
func (f *fixture) PodsOn(node string) (pods []*v1.Pod, _ error) {
	for _, pod := range f.pods {
		if pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// Leads implements Leadership.
func (f *fixture) Leads() bool { return f.leads }

func (f *fixture) nextVersion() string {
	f.version++
	return fmt.Sprint(f.version)
}

// gpus are the node's, in groups of two.
var gpus = []string{"0/gpu/A", "0/gpu/B", "1/gpu/C", "1/gpu/D"}

func cards(gpu string) sdk.ResourceName {
	at := slices.IndexFunc(gpus, func(path string) bool { return strings.HasSuffix(path, "/"+gpu) })
	return sdk.ResourceName(sdk.DeviceGroupPrefix + "/gpugrp0/" + gpus[at] + "/cards")
}

// node updates the node, which requests replacements for these pods.
func (f *fixture) node(wanted ...deviceinfo.Replacement) {
	f.Helper()
	info := sdk.NewNodeInfoWithName("n")
	for _, gpu := range []string{"A", "B", "C", "D"} {
		info.Capacity[cards(gpu)] = 1
		if !f.unhealthy[gpu] {
			info.Allocatable[cards(gpu)] = 1
		}
	}
	value, err := deviceinfo.EncodeNode(info)
	if err != nil {
		f.Fatal(err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "n", ResourceVersion: f.nextVersion(), Annotations: map[string]string{
			deviceinfo.Annotation: value,
			deviceinfo.ReplacementsAnnotation: deviceinfo.EncodeReplacements(wanted,
				deviceinfo.MaxReplacementsBytes),
		},
	}}
	if err := f.nodes.Update(node); err != nil {
		f.Fatal(err)
	}
}

// breaks makes a GPU unhealthy, and the node request replacements for the pods.
func (f *fixture) breaks(gpu string, wanted ...deviceinfo.Replacement) {
	f.unhealthy[gpu] = true
	f.node(wanted...)
}

// holder is a bound pod whose containers have GPUs. Each of them requests as many, of any group.
func (f *fixture) holder(name string, generation int64, containers map[string]string) *v1.Pod {
	f.Helper()
	info := &sdk.PodInfo{Name: name, NodeName: "n", RunningContainers: map[string]sdk.ContainerInfo{}}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), ResourceVersion: f.nextVersion(),
		},
		Spec: v1.PodSpec{NodeName: "n"},
	}
	for container, has := range containers {
		spec := sdk.ContainerInfo{
			Requests: sdk.ResourceList{}, DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{},
		}
		for i, gpu := range strings.Fields(has) {
			request := fmt.Sprintf("gpugrp0/%d/gpu/%d/cards", i, i)
			spec.Requests[sdk.ResourceName(request)] = 1
			full := sdk.ResourceName(sdk.DeviceGroupPrefix + "/" + request)
			spec.DevRequests[full], spec.AllocateFrom[full] = 1, cards(gpu)
		}
		info.RunningContainers[container] = spec
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: container})
	}
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := f.engine.Keys.Signer().Seal(seal.Decision{
		UID: pod.UID, Namespace: "team", Name: name, Node: "n", Allocation: seal.DigestOf(info),
		Generation: generation, Time: time.Unix(1, 0),
	})
	if err != nil {
		f.Fatal(err)
	}
	pod.Annotations = map[string]string{deviceinfo.Annotation: value, seal.Annotation: sealed}
	f.pods = append(f.pods, pod)
	if err := f.client.Tracker().Add(pod); err != nil {
		f.Fatal(err)
	}
	return pod
}

// patch is the API server's answer to a patch.
func (f *fixture) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	if f.patching != nil {
		f.patching()
	}
	patch := action.(clienttesting.PatchAction)
	if patch.GetSubresource() != "status" || patch.GetPatchType() != types.MergePatchType {
		f.Errorf("patch of %q of type %s", patch.GetSubresource(), patch.GetPatchType())
	}
	var body struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch.GetPatch(), &body); err != nil {
		f.Fatal(err)
	}
	gvr := v1.SchemeGroupVersion.WithResource("pods")
	object, err := f.client.Tracker().Get(gvr, "team", patch.GetName())
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	if body.Metadata.UID != pod.UID || body.Metadata.ResourceVersion != pod.ResourceVersion {
		return true, nil, apierrors.NewConflict(gvr.GroupResource(), pod.Name, fmt.Errorf("version"))
	}
	apply := func() {
		for key, value := range body.Metadata.Annotations {
			pod.Annotations[key] = value
		}
		pod.ResourceVersion = f.nextVersion()
		if err := f.client.Tracker().Update(gvr, pod, "team"); err != nil {
			f.Error(err)
		}
	}
	if lose := f.lose; lose != nil {
		f.lose = nil
		return true, nil, lose(apply)
	}
	apply()
	return true, pod, nil
}

// seen lets the informer see the pods as the API server has them.
func (f *fixture) seen() {
	for i, pod := range f.pods {
		now, err := f.client.CoreV1().Pods("team").Get(context.Background(), pod.Name, metav1.GetOptions{})
		if err != nil {
			f.Fatal(err)
		}
		f.pods[i] = now
	}
}

// has returns the GPUs of a container as the API server has them, and the generation.
func (f *fixture) has(name, container string) string {
	f.Helper()
	pod, err := f.client.CoreV1().Pods("team").Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	generation, err := f.engine.generationOf(pod)
	if err != nil {
		f.Fatalf("pod %s has no valid seal: %v", name, err)
	}
	info, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		f.Fatal(err)
	}
	var all []string
	for _, device := range info.RunningContainers[container].AllocateFrom {
		all = append(all, strings.Split(string(device), "/")[5])
	}
	slices.Sort(all)
	return fmt.Sprintf("%s, generation %d", strings.Join(all, " "), generation)
}

func (f *fixture) want(what, got, want string) {
	f.Helper()
	if got != want {
		f.Errorf("%s: %q, want %q", what, got, want)
	}
}

// sync answers the node once, and returns the last event.
func (f *fixture) sync() (event string) {
	f.engine.sync(f.Context(), "n")
	for {
		select {
		case event = <-f.events.Events:
		default:
			return event
		}
	}
}

// free returns the GPUs that a new pod could get.
func (f *fixture) free() string {
	f.Helper()
	source, err := f.engine.NodeLister.Get("n")
	if err != nil {
		f.Fatal(err)
	}
	bound, _ := f.PodsOn("n")
	view, err := f.engine.Nodes.View(f.Context(), source, bound)
	if err != nil {
		f.Fatal(err)
	}
	var all []string
	for _, card := range view.Devices.Resources() {
		if card.Allocatable > card.Used {
			all = append(all, strings.Split(string(card.Name), "/")[5])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

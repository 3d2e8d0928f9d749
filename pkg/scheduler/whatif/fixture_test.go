// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// fixture is upstream's scheduler with the plugin, on a fake API server, and the engine that
// answers for it.
type fixture struct {
	testing.TB
	client     *fake.Clientset
	schedulers *allocation.Set
	shared     *frameworkplugin.Shared
	scheduler  *scheduler.Scheduler
	factory    informers.SharedInformerFactory
	engine     *Engine
	versions   atomic.Int64
}

// sleeps is a clock that calls the function instead of sleeping.
type sleeps func(time.Duration)

func (s sleeps) Sleep(d time.Duration) { s(d) }

// upstreamProfiles is the configuration with defaultProfiles.
type upstreamProfiles struct{}

func (upstreamProfiles) Profiles() ([]config.KubeSchedulerProfile, error) { return defaultProfiles() }

// defaultProfiles are upstream's, with the plugin where package scheduler puts it.
func defaultProfiles() ([]config.KubeSchedulerProfile, error) {
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	var internal config.KubeSchedulerConfiguration
	if err := scheme.Scheme.Convert(&versioned, &internal, nil); err != nil {
		return nil, err
	}
	for _, profile := range internal.Profiles {
		for _, set := range []*config.PluginSet{
			&profile.Plugins.MultiPoint, &profile.Plugins.Bind, &profile.Plugins.PostFilter,
		} {
			set.Enabled = slices.Insert(set.Enabled, 0, config.Plugin{Name: frameworkplugin.Name})
		}
	}
	return internal.Profiles, nil
}

func newFixture(t testing.TB, objects ...runtime.Object) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	f := &fixture{TB: t, client: fake.NewClientset(objects...)}
	f.versions.Store(1000)
	f.client.PrependReactor("create", "pods", f.bind)
	f.factory = informers.NewSharedInformerFactory(f.client, 0)
	f.schedulers = allocation.New(klog.Logger{}, nil,
		allocation.Named{File: "gpus.so", Plugin: gpuscheduler.New("gpus", gpu.Resource)})
	budgets := allocation.DefaultSearchBudgets
	budgets.StepsOnly = true // the race detector makes a step take many times as long
	f.schedulers.SetSearchBudgets(budgets)
	profiles, err := defaultProfiles()
	if err != nil {
		t.Fatal(err)
	}
	plugin := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		options := frameworkplugin.Options{Quota: frameworkplugin.QuotaWarn}
		if f.shared, err = frameworkplugin.NewShared(ctx, f.schedulers, handle, options); err != nil {
			return nil, err
		}
		f.engine = New(ctx, f.shared, handle, upstreamProfiles{})
		f.engine.clock = sleeps(func(time.Duration) {})
		return frameworkplugin.New(handle, f.shared), nil
	}
	f.scheduler, err = scheduler.New(ctx, f.client, f.factory, nil,
		func(string) events.EventRecorderLogger { return noop{} },
		scheduler.WithProfiles(profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{frameworkplugin.Name: plugin}),
		scheduler.WithPodInitialBackoffSeconds(1))
	if err != nil {
		t.Fatal(err)
	}
	f.factory.Start(ctx.Done())
	f.factory.WaitForCacheSync(ctx.Done())
	if err := f.scheduler.WaitForHandlersSync(ctx); err != nil {
		t.Fatal(err)
	}
	f.await("the plugin knows nodes and pods", f.shared.Synced)
	t.Cleanup(func() {
		f.shared.Close()
		cancel()
		f.factory.Shutdown()
	})
	return f
}

// bind does what the API server does with a Binding.
func (f *fixture) bind(action clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok || action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding := create.GetObject().(*v1.Binding)
	pods := v1.SchemeGroupVersion.WithResource("pods")
	object, err := f.client.Tracker().Get(pods, binding.Namespace, binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	pod.Spec.NodeName, pod.ResourceVersion = binding.Target.Name, strconv.FormatInt(f.versions.Add(1), 10)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for name, value := range binding.Annotations {
		pod.Annotations[name] = value
	}
	return true, binding, f.client.Tracker().Update(pods, pod, pod.Namespace)
}

// await waits for a condition.
func (f *fixture) await(what string, is func() bool) {
	f.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(deadline) {
			f.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// machine is a node with pairs of GPUs.
type machine struct {
	name    string
	pairs   int
	cpu     int64
	zone    string
	tainted bool
}

func (m machine) gpus() (names []string) {
	for i := range 2 * m.pairs {
		names = append(names, fmt.Sprintf("g%d", i))
	}
	return names
}

// path returns the path of a GPU of the machine.
func (m machine) path(gpu string) string {
	i, _ := strconv.Atoi(gpu[1:])
	return fmt.Sprintf("gpugrp1/0/gpugrp0/%d/gpu/%s", i/2, gpu)
}

func (m machine) node() *v1.Node {
	info := sdk.NewNodeInfoWithName(m.name)
	info.Capacity["nvidia.com/gpu"] = int64(2 * m.pairs)
	for _, gpu := range m.gpus() {
		sdk.AddGroupResource(info.Allocatable, m.path(gpu)+"/cards", 1)
	}
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		panic(err)
	}
	capacity := v1.ResourceList{
		"cpu": *resource.NewQuantity(m.cpu, resource.DecimalSI), "pods": resource.MustParse("110"),
		"memory":         resource.MustParse("100Gi"),
		"nvidia.com/gpu": *resource.NewQuantity(int64(2*m.pairs), resource.DecimalSI),
	}
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.name, UID: types.UID(m.name), ResourceVersion: "1",
			Labels:      map[string]string{v1.LabelHostname: m.name, "zone": m.zone},
			Annotations: map[string]string{deviceinfo.Annotation: annotation},
		},
		Status: v1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
	if m.tainted {
		node.Spec.Taints = []v1.Taint{{Key: "team", Value: "x", Effect: v1.TaintEffectNoSchedule}}
	}
	return node
}

// tenant is a pod that runs.
type tenant struct {
	name     string
	node     machine
	gpus     []string
	cpu      int64
	priority int32
	daemon   bool
}

func (t tenant) pod() *v1.Pod {
	pod := newPod(t.name, gpuRequest{count: len(t.gpus), cpu: t.cpu})
	pod.ResourceVersion, pod.Spec.NodeName, pod.Spec.Priority = "2", t.node.name, &t.priority
	if t.daemon {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true),
		}}
	}
	if len(t.gpus) == 0 {
		return pod
	}
	container := sdk.ContainerInfo{DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{}}
	for i, gpu := range t.gpus {
		wanted := sdk.ResourceName(fmt.Sprintf("resource/group/gpugrp1/0/gpugrp0/%d/gpu/%d/cards", i, i))
		container.DevRequests[wanted] = 1
		container.AllocateFrom[wanted] = sdk.ResourceName("resource/group/" + t.node.path(gpu) + "/cards")
	}
	annotation, err := deviceinfo.EncodePod(&sdk.PodInfo{
		Name: t.name, NodeName: t.node.name, RunningContainers: map[string]sdk.ContainerInfo{"main": container},
	})
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	return pod
}

// gpuRequest is a pod's request: a number of GPUs, or of pairs of them.
type gpuRequest struct {
	count, pairs int
	cpu          int64
	zone         string
	// connected says that the pod requires the counted GPUs to be the best connected ones.
	connected bool
}

func newPod(name string, r gpuRequest) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1",
		},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName,
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				"cpu": *resource.NewQuantity(r.cpu, resource.DecimalSI),
			}}}},
		},
	}
	if r.zone != "" {
		pod.Spec.NodeSelector = map[string]string{"zone": r.zone}
	}
	main := &pod.Spec.Containers[0].Resources
	if r.count > 0 {
		main.Requests["nvidia.com/gpu"] = *resource.NewQuantity(int64(r.count), resource.DecimalSI)
		main.Limits = v1.ResourceList{"nvidia.com/gpu": main.Requests["nvidia.com/gpu"]}
	}
	if r.connected {
		pod.Annotations = map[string]string{deviceinfo.Annotation: `{"requests":{"gpu/gpu-generate-topology":1}}`}
	}
	if r.pairs > 0 {
		var requests []string
		for i := range 2 * r.pairs {
			requests = append(requests, fmt.Sprintf(`"gpugrp0/%d/gpu/%d/cards":1`, i/2, i))
		}
		pod.Annotations = map[string]string{deviceinfo.Annotation: fmt.Sprintf(
			`{"runningcontainer":{"main":{"requests":{%s}}}}`, strings.Join(requests, ","))}
	}
	return pod
}

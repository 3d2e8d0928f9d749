// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/bundle"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/scheduler"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// start is when the pods of tests were made, and now when the commands run.
var (
	start = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)
	now   = start.Add(3 * time.Hour)
)

const gib = 1 << 30

// streams is a client whose watches are plain ones: fakes do not list by watching.
type streams struct{ corev1client.CoreV1Interface }

func (streams) IsWatchListSemanticsUnSupported() bool { return true }

// fixture runs commands on a cluster that is not there.
type fixture struct {
	client    *fake.Clientset
	terminal  columns.Terminal
	scheduler querier // nil for none
}

func newFixture(objects ...runtime.Object) *fixture {
	return &fixture{client: fake.NewClientset(objects...)}
}

// run runs a command line and returns what it prints, and its exit status.
func (f *fixture) run(ctx context.Context, line string) (stdout, stderr string, status int) {
	var out, errOut bytes.Buffer
	status = f.runTo(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	return out.String(), errOut.String(), status
}

func (f *fixture) runTo(ctx context.Context, line string, to genericiooptions.IOStreams) int {
	env := &environment{IOStreams: to, terminal: f.terminal, now: func() time.Time { return now }}
	namespace := "default"
	env.client = func() (corev1client.CoreV1Interface, string, error) {
		return streams{f.client.CoreV1()}, namespace, nil
	}
	env.clusterName = func() string { return "test" }
	env.clients = func() (bundle.Clients, error) {
		return bundle.Clients{
			Core: f.client.CoreV1(), Coordination: f.client.CoordinationV1(),
			Admission: f.client.AdmissionregistrationV1(),
			Version:   f.client.Discovery().(*fakediscovery.FakeDiscovery),
		}, nil
	}
	env.batch = func() (batchclient.BatchV1Interface, error) { return f.client.BatchV1(), nil }
	env.resources = func() (resourceclient.ResourceV1Interface, error) { return f.client.ResourceV1(), nil }
	env.schedulers = func() (scheduler.Options, error) {
		config := &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "secret"}
		return scheduler.Options{Config: config, Leases: f.client.CoordinationV1(), Now: env.now}, nil
	}
	env.placement = env.connectScheduler
	if f.scheduler != nil {
		env.placement = func(context.Context, string) (querier, func(), error) { return f.scheduler, func() {}, nil }
	}
	command := newCommand(env)
	command.PersistentFlags().StringVarP(&namespace, "namespace", "n", namespace, "")
	command.SetArgs(strings.Fields(line))
	return run(ctx, command, env)
}

// gpus is what a node has: GPUs of 80 GiB, called by number, in pairs and fours.
func gpus(count int) *types.NodeInfo {
	info := types.NewNodeInfo()
	for i := range count {
		name := fmt.Sprintf("gpugrp1/%d/gpugrp0/%d/gpu/gpu-%d/", i/4, i/2, i)
		for _, list := range []types.ResourceList{info.Capacity, info.Allocatable} {
			types.AddGroupResource(list, name+"cards", 1)
			types.AddGroupResource(list, name+"memory", 80*gib)
		}
	}
	info.Capacity["nvidia.com/gpu"], info.Allocatable["nvidia.com/gpu"] = int64(count), int64(count)
	return info
}

// without makes a GPU unhealthy.
func without(info *types.NodeInfo, id string) *types.NodeInfo {
	maps.DeleteFunc(info.Allocatable, func(name types.ResourceName, _ int64) bool {
		return strings.Contains(string(name), "/"+id+"/")
	})
	return info
}

// resources returns resources by their names without the prefix.
func resources(quantities map[string]int64) types.ResourceList {
	list := types.ResourceList{}
	for name, quantity := range quantities {
		types.AddGroupResource(list, name, quantity)
	}
	return list
}

// newNode returns a node with an inventory; nil is none.
func newNode(t testing.TB, name string, info *types.NodeInfo) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: apitypes.UID(name), Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	if info != nil {
		info.Name = name
		value, err := deviceinfo.EncodeNode(info)
		if err != nil {
			t.Fatal(err)
		}
		node.Annotations[deviceinfo.Annotation] = value
	}
	return node
}

// report makes a node report what pods hold.
func report(t testing.TB, node *corev1.Node, holders ...deviceinfo.Holder) *corev1.Node {
	t.Helper()
	value, err := deviceinfo.EncodeHolders(holders)
	if err != nil {
		t.Fatal(err)
	}
	node.Annotations[deviceinfo.HoldersAnnotation] = value
	return node
}

// newPod returns a pod with one container, main, made at the start.
func newPod(name string) *corev1.Pod {
	namespace := "default"
	if before, after, ok := strings.Cut(name, "/"); ok {
		namespace, name = before, after
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: apitypes.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(start), Annotations: map[string]string{},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// counting makes the container main count GPUs in its limits.
func counting(pod *corev1.Pod, gpus int64) *corev1.Pod {
	list := corev1.ResourceList{"nvidia.com/gpu": *apiresource.NewQuantity(gpus, apiresource.DecimalSI)}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	return pod
}

// bound binds a pod with what its containers are allocated, an hour after its start.
func bound(t testing.TB, pod *corev1.Pod, node string, allocated map[string]map[string]int64) *corev1.Pod {
	t.Helper()
	pod.Spec.NodeName = node
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(start.Add(time.Hour)),
	}}
	info := types.NewPodInfo()
	info.Name, info.NodeName = pod.Name, node
	for container, list := range allocated {
		in := types.NewContainerInfo()
		for name, quantity := range resources(list) {
			in.DevRequests[name], in.AllocateFrom[name] = quantity, name
		}
		info.RunningContainers[container] = *in
	}
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[deviceinfo.Annotation] = value
	return pod
}

// running makes the kubelet report that all containers run.
func running(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodRunning
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	return pod
}

// waiting is what the scheduler says of a pod that it cannot bind.
func waiting(pod *corev1.Pod, message string) *corev1.Pod {
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message,
	}}
	return pod
}

// wholeGPU is all of a GPU of gpus.
func wholeGPU(i int) map[string]int64 { return someOfGPU(i, 1, 80*gib) }

func someOfGPU(i int, cards, memory int64) map[string]int64 {
	name := fmt.Sprintf("gpugrp1/%d/gpugrp0/%d/gpu/gpu-%d/", i/4, i/2, i)
	list := map[string]int64{name + "memory": memory}
	if cards > 0 {
		list[name+"cards"] = cards
	}
	return list
}

func both(a, b map[string]int64) map[string]int64 {
	sum := maps.Clone(a)
	maps.Copy(sum, b)
	return sum
}

// publishing is a lease by which a scheduler publishes where it answers.
func publishing(t testing.TB, name string, renewed time.Time, address schedulerapi.Address) *coordinationv1.Lease {
	t.Helper()
	value, err := json.Marshal(address)
	if err != nil {
		t.Fatal(err)
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: schedulerapi.Namespace,
			Annotations: map[string]string{schedulerapi.AddressAnnotation: string(value)},
		},
		Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

// zoo is a cluster with a bit of everything.
func zoo(t testing.TB) []runtime.Object {
	large := newNode(t, "large", without(gpus(8), "gpu-5"))
	large.Labels["nvidia.com/gpu.product"] = "H100-SXM5-80GB"
	large.Labels["pool"] = "training"
	large.Annotations[deviceinfo.AttributesAnnotation] = `{"gpugrp1/1/gpugrp0/3/gpu/gpu-6":{` +
		`"productName":"NVIDIA H100 80GB HBM3","cudaComputeCapability":{"version":"9.0.0"},"uuid":"gpu-6",` +
		`"resource.kubernetes.io/numaNode":1}}`
	large.Annotations[deviceinfo.UsageAnnotation] = `{"time":"2026-05-04T10:55:00Z","devices":{` +
		`"gpugrp1/0/gpugrp0/0/gpu/gpu-0":{"memoryTotal":85899345920,"memoryUsed":32212254720,"memoryUnowned":0},` +
		`"gpugrp1/1/gpugrp0/3/gpu/gpu-6":{"memoryTotal":85899345920,"memoryUsed":0,"memoryUnowned":0}}}`
	large.Annotations[deviceinfo.UnhealthyAnnotation] = `[{"device":"gpugrp1/1/gpugrp0/2/gpu/gpu-5","reason":"Xid79",` +
		`"message":"critical error (XID) 79; reset the GPU or reboot the machine","since":"2026-01-02T03:04:05Z"},` +
		`{"device":"gpugrp1/0/gpugrp0/0/gpu/gpu-0","reason":"Lost","since":"2026-01-02T03:04:05Z"}]`

	// Without groups, as a plugin of the scheduler puts into groups; and some is used by others.
	flat := types.NewNodeInfo()
	flat.Capacity = resources(map[string]int64{
		"gpu/A/cards": 1, "gpu/A/memory": 16 * gib, "gpu/B/cards": 1, "gpu/B/memory": 16 * gib,
	})
	flat.Allocatable = maps.Clone(flat.Capacity)
	flat.Used = resources(map[string]int64{"gpu/B/memory": 4 * gib})
	inGroups := resources(map[string]int64{"gpugrp1/0/gpugrp0/A/gpu/A/cards": 1})
	reporting := report(t, newNode(t, "reporting", flat),
		deviceinfo.Holder{
			UID: "uid-reported", Namespace: "default", Name: "reported",
			Containers: map[string]types.ResourceList{"main": inGroups},
		},
		deviceinfo.Holder{
			UID: "uid-past", Namespace: "default", Name: "past",
			Containers: map[string]types.ResourceList{"main": inGroups},
		})

	mixed := types.NewNodeInfo()
	mixed.Capacity = resources(map[string]int64{
		"numa/0/intel.com:qat/0000:3d:01.0/device": 1, "numa/0/intel.com:qat/0000:3d:01.1/device": 1,
		"numa/1/vendor.example:nic/eth0/device": 1, "switch/0/enumPorts": 0xf0, "switch/0/link/a/bandwidth": 100,
	})
	mixed.Capacity["intel.com/qat"] = 2
	mixed.Allocatable = maps.Clone(mixed.Capacity)
	types.AddGroupResource(mixed.Allocatable, "numa/1/vendor.example:nic/eth0/device", 0)

	unreadable := newNode(t, "unreadable", nil)
	unreadable.Annotations[deviceinfo.Annotation] = `{"capacity":{"gpu":-1}}`

	twins := newPod("twins")
	twins.Spec.Containers = append(twins.Spec.Containers, corev1.Container{Name: "side"})
	foreign := bound(t, newPod("foreign"), "reporting", map[string]map[string]int64{"main": {"gpu/B/cards": 1}})
	foreign.Annotations[deviceinfo.Annotation] = strings.Replace(
		foreign.Annotations[deviceinfo.Annotation], `"reporting"`, `"other"`, 1)
	byOther := counting(running(newPod("by-other")), 1)
	byOther.Spec.NodeName = "large"
	garbled := waiting(newPod("garbled"), "the pod cannot be read")
	garbled.Annotations[deviceinfo.Annotation] = "{"
	asking := waiting(newPod("ml/asking"), "0/4 nodes are available: 3 have no gpu with 20 GiB of memory free (best: "+
		"10 GiB free of 80 GiB). preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.")
	const quarter = `{"runningcontainer":{"main":{"requests":{"gpu/a/memory":21474836480}}}}`
	asking.Annotations[deviceinfo.Annotation] = quarter
	ended := bound(t, newPod("ended"), "large", map[string]map[string]int64{"main": wholeGPU(6)})
	ended.Status.Phase = corev1.PodSucceeded

	elsewhere := schedulerapi.Address{
		Host: "cp1", BindAddress: "127.0.0.1", Port: 10262, Leads: true, Version: "v1.37.1+kubedevice-1",
		PublicKey: "sha256:0123456789abcdef",
	}
	gone := elsewhere
	gone.Host, gone.PodNamespace, gone.Pod = "cp2", "kube-system", "kube-scheduler-cp2"

	return []runtime.Object{
		publishing(t, "cp1-10262", now.Add(-5*time.Second), elsewhere),
		publishing(t, "cp2-10262", now.Add(-time.Hour), gone),
		large, reporting, newNode(t, "mixed", mixed), unreadable, newNode(t, "plain", nil),
		counting(running(bound(t, newPod("pair"), "large",
			map[string]map[string]int64{"main": both(wholeGPU(0), wholeGPU(1))})), 2),
		running(bound(t, twins, "large", map[string]map[string]int64{
			"main": someOfGPU(2, 0, 20*gib), "side": someOfGPU(2, 0, 40*gib),
		})),
		bound(t, newPod("ml/quarter"), "large", map[string]map[string]int64{"main": someOfGPU(2, 0, 10*gib)}),
		bound(t, newPod("ml/unhealthy"), "large", map[string]map[string]int64{"main": someOfGPU(5, 0, 20*gib)}),
		running(bound(t, newPod("lost"), "large", map[string]map[string]int64{"main": someOfGPU(9, 1, 80*gib)})),
		bound(t, newPod("reported"), "reporting", map[string]map[string]int64{"main": {"gpu/B/cards": 1}}),
		running(bound(t, newPod("crypto"), "mixed",
			map[string]map[string]int64{"main": {"numa/0/intel.com:qat/0000:3d:01.1/device": 1}})),
		foreign, byOther, garbled, asking, ended, newPod("plain"),
		waiting(counting(newPod("big"), 8), "0/5 nodes are available: 2 have fewer than 8 free GPUs (best: 3 free of "+
			"8), 3 node(s) didn't match Pod's node affinity/selector. preemption: none."),
		counting(newPod("new"), 1),
	}
}

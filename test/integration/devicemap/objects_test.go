// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/kube"
)

const (
	gib     = 1 << 30
	perNode = 8
	model   = "NVIDIA-H100-80GB-HBM3"
)

// gpuPath is the path of a GPU: pairs, and two pairs to a socket.
func gpuPath(i int) string { return fmt.Sprintf("gpugrp1/%d/gpugrp0/%d/gpu/gpu-%d/", i/4, i/2, i) }

// newNode returns a node with GPUs, some of which are unhealthy.
func newNode(t *testing.T, name string, unhealthy ...int) *corev1.Node {
	t.Helper()
	info := types.NewNodeInfoWithName(name)
	for i := range perNode {
		types.AddGroupResource(info.Capacity, gpuPath(i)+"cards", 1)
		types.AddGroupResource(info.Capacity, gpuPath(i)+"memory", 80*gib)
	}
	attributes := map[string]device.Attributes{}
	for i := range perNode {
		attributes[strings.TrimSuffix(gpuPath(i), "/")] = device.Attributes{"nvlinkDomain": device.Int(int64(i / 2))}
	}
	published, left := deviceinfo.EncodeAttributes(attributes, deviceinfo.MaxAttributesBytes)
	if len(left) > 0 {
		t.Fatalf("%q are left out", left)
	}
	info.Capacity["nvidia.com/gpu"] = perNode
	info.Allocatable = maps.Clone(info.Capacity)
	for _, i := range unhealthy {
		maps.DeleteFunc(info.Allocatable, func(resource types.ResourceName, _ int64) bool {
			return strings.Contains(string(resource), "/"+gpuPath(i))
		})
	}
	value, err := deviceinfo.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"nvidia.com/gpu.product": model},
		Annotations: map[string]string{deviceinfo.Annotation: value, deviceinfo.AttributesAnnotation: published},
	}}
}

// allocation returns the annotation of a pod that has GPUs: whole ones, as the scheduler writes
// them, or memory of each alone.
func allocation(t *testing.T, pod, node string, memory int64, gpus ...int) string {
	t.Helper()
	container := types.NewContainerInfo()
	for _, i := range gpus {
		held := map[string]int64{"memory": memory}
		if memory == 0 {
			held = map[string]int64{"cards": 1}
		}
		for resource, quantity := range held {
			name := types.ResourceName(types.DeviceGroupPrefix + "/" + gpuPath(i) + resource)
			container.DevRequests[name], container.AllocateFrom[name] = quantity, name
		}
	}
	info := types.NewPodInfo()
	info.Name, info.NodeName, info.RunningContainers["main"] = pod, node, *container
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// newPod returns a pod that counts GPUs.
func newPod(namespace, name string, gpus int64) *corev1.Pod {
	pod := kube.NewPod(name, "registry.example/app")
	pod.Namespace = namespace
	if gpus > 0 {
		list := corev1.ResourceList{"nvidia.com/gpu": *apiresource.NewQuantity(gpus, apiresource.DecimalSI)}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	}
	return pod
}

// holding returns a pod that is bound and has GPUs: see allocation.
func holding(t *testing.T, namespace, name, node string, memory int64, gpus ...int) *corev1.Pod {
	t.Helper()
	count := len(gpus)
	if memory > 0 {
		count = 0
	}
	pod := newPod(namespace, name, int64(count))
	pod.Annotations = map[string]string{deviceinfo.Annotation: allocation(t, name, node, memory, gpus...)}
	pod.Spec.NodeName = node
	return pod
}

var (
	teams = []string{"research", "vision", "speech"}
	work  = []string{"train", "finetune", "evaluate", "notebook", "embed", "serve"}
)

// fill returns pods that use a random part of a node's GPUs.
func fill(t *testing.T, random *rand.Rand, node string, unhealthy ...int) (pods []*corev1.Pod) {
	t.Helper()
	name := func(gpu int) (namespace, name string) {
		return teams[random.IntN(len(teams))], fmt.Sprintf("%s-%s-%d", work[random.IntN(len(work))], node, gpu)
	}
	for i := 0; i < perNode; {
		size := []int{1, 1, 1, 2, 2, 4}[random.IntN(6)]
		if i%size != 0 {
			continue
		}
		group := make([]int, size)
		for j := range group {
			group[j] = i + j
		}
		namespace, pod := name(i)
		switch kind := random.IntN(10); {
		case len(unhealthy) > 0 && i <= unhealthy[0] && unhealthy[0] < i+size, kind < 3: // free
		case size == 1 && kind < 7:
			for part := range 1 + random.IntN(3) {
				memory := int64(12+random.IntN(14)) * gib
				pods = append(pods, holding(t, namespace, fmt.Sprintf("%s-%d", pod, part), node, memory, i))
			}
		default:
			pods = append(pods, holding(t, namespace, pod, node, 0, group...))
		}
		i += size
	}
	return pods
}

// setTaints sets the taints of a node's devices, in the object alone.
func setTaints(t *testing.T, node *corev1.Node, taints ...deviceinfo.DeviceTaint) {
	t.Helper()
	value, err := deviceinfo.EncodeDeviceTaints(taints)
	if err != nil {
		t.Fatal(err)
	}
	node.Annotations[deviceinfo.DeviceTaintsAnnotation] = value
}

// cordon is the taint of a cordoned GPU.
func cordon(gpu int) deviceinfo.DeviceTaint {
	return deviceinfo.DeviceTaint{
		Device: fmt.Sprintf("gpu/gpu-%d", gpu), Key: deviceinfo.CordonKey, Effect: corev1.TaintEffectNoSchedule,
		TimeAdded: time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Second),
	}
}

// annotate gives a node that is there the annotations of another.
func annotate(ctx context.Context, like *corev1.Node) error {
	node, err := server.Admin.CoreV1().Nodes().Get(ctx, like.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Annotations = like.Annotations
	_, err = server.Admin.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// parallel calls do with each number below count, many at a time.
func parallel(t *testing.T, count int, do func(i int) error) {
	t.Helper()
	numbers := make(chan int)
	var working sync.WaitGroup
	var failed atomic.Bool
	for range 64 {
		working.Go(func() {
			for i := range numbers {
				if err := do(i); err != nil {
					t.Error(err)
					failed.Store(true)
				}
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	if working.Wait(); failed.Load() {
		t.FailNow()
	}
}

// create creates nodes, pods, and namespaces for these, and deletes all but the namespaces at the
// end of the test. See start for pods that run.
func create(ctx context.Context, t *testing.T, nodes []*corev1.Node, pods []*corev1.Pod) {
	t.Helper()
	config := *server.Admin.Config
	config.ContentType = runtime.ContentTypeProtobuf // a third of the time of JSON
	client, err := kube.NewClient(&config)
	if err != nil {
		t.Fatal(err)
	}
	core := client.CoreV1()
	for _, team := range teams {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
		if _, err := core.Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if *limits {
			return // the figures alone are measured, and the server ends next
		}
		after := context.WithoutCancel(ctx)
		for _, team := range teams {
			now := *metav1.NewDeleteOptions(0)
			if err := core.Pods(team).DeleteCollection(after, now, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		}
		if err := core.Nodes().DeleteCollection(after, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	parallel(t, len(nodes), func(i int) error {
		_, err := core.Nodes().Create(ctx, nodes[i], metav1.CreateOptions{})
		return err
	})
	parallel(t, len(pods), func(i int) error {
		_, err := core.Pods(pods[i].Namespace).Create(ctx, pods[i], metav1.CreateOptions{})
		return err
	})
}

// start reports of pods that they run, as kubelets do.
func start(ctx context.Context, t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	parallel(t, len(pods), func(i int) error {
		pod := pods[i].DeepCopy()
		pod.Status = running
		_, err := server.Admin.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// running is what a kubelet reports of a pod that runs.
var running = corev1.PodStatus{
	Phase:      corev1.PodRunning,
	Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
	ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}},
}

// wait creates a pod that waits, with the scheduler's reason.
func wait(ctx context.Context, t *testing.T, pod *corev1.Pod, reason string) *corev1.Pod {
	t.Helper()
	created, err := server.Admin.CreatePod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	created.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: reason,
	}}
	created, err = server.Admin.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	report(ctx, t, created, corev1.EventTypeWarning, "FailedScheduling", reason)
	return created
}

// bind does what the scheduler does for a pod that has waited. Its event comes first: the map reads
// a pod's events when the pod has changed.
func bind(ctx context.Context, t *testing.T, pod *corev1.Pod, node string, gpus ...int) {
	t.Helper()
	report(ctx, t, pod, corev1.EventTypeNormal, "Scheduled",
		fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node))
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: map[string]string{deviceinfo.Annotation: allocation(t, pod.Name, node, 0, gpus...)},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}
	err := server.Admin.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// report creates an event about a pod.
func report(ctx context.Context, t *testing.T, pod *corev1.Pod, kind, reason, message string) {
	t.Helper()
	_, err := server.Admin.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name + "."},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Type:           kind, Reason: reason, Message: message, LastTimestamp: metav1.Now(),
		Source: corev1.EventSource{Component: "kubedevice-scheduler"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

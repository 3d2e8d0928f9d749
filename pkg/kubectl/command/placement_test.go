// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	upstream "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/whatif"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// engine is a scheduler that answers questions about placement at this address.
type engine string

func (address engine) Query(ctx context.Context, method, path string, in, out any) error {
	question, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, string(address)+path, bytes.NewReader(question))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var status metav1.Status
		if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
			return err
		}
		return apierrors.FromObject(&status)
	}
	return json.NewDecoder(response.Body).Decode(out)
}

// silent writes no events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
func (s silent) WithLogger(klog.Logger) events.EventRecorderLogger                           { return s }

// upstreamProfiles returns upstream's profiles.
type upstreamProfiles func() ([]config.KubeSchedulerProfile, error)

// Profiles implements whatif.Profiles.
func (p upstreamProfiles) Profiles() ([]config.KubeSchedulerProfile, error) { return p() }

// startEngine starts the engine of a scheduler that serves pods of this scheduler name, knows these
// objects, and schedules none.
func startEngine(t *testing.T, name string, objects ...runtime.Object) engine {
	t.Helper()
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	profiles := upstreamProfiles(func() ([]config.KubeSchedulerProfile, error) {
		var versioned configv1.KubeSchedulerConfiguration
		scheme.Scheme.Default(&versioned)
		var internal config.KubeSchedulerConfiguration
		err := scheme.Scheme.Convert(&versioned, &internal, nil)
		for i, profile := range internal.Profiles {
			internal.Profiles[i].SchedulerName = name
			set := &profile.Plugins.MultiPoint
			set.Enabled = slices.Insert(set.Enabled, 0, config.Plugin{Name: frameworkplugin.Name})
		}
		return internal.Profiles, err
	})
	configured, err := profiles()
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	t.Cleanup(factory.Shutdown)
	schedulers := allocation.New(klog.Logger{}, nil,
		allocation.Named{File: "gpus.so", Plugin: gpuscheduler.New("gpus", gpu.Resource)})
	budgets := allocation.DefaultSearchBudgets
	budgets.StepsOnly = true
	schedulers.SetSearchBudgets(budgets)
	var shared *frameworkplugin.Shared
	var answers *whatif.Engine
	plugin := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		shared, err = frameworkplugin.NewShared(ctx, schedulers, handle, frameworkplugin.Options{
			Quota: frameworkplugin.QuotaWarn,
		})
		if err != nil {
			return nil, err
		}
		answers = whatif.New(ctx, shared, handle, profiles)
		return frameworkplugin.New(handle, shared), nil
	}
	_, err = upstream.New(ctx, client, factory, nil, func(string) events.EventRecorderLogger { return silent{} },
		upstream.WithProfiles(configured...),
		upstream.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{frameworkplugin.Name: plugin}))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for deadline := time.Now().Add(20 * time.Second); !shared.Synced(); {
		if time.Now().After(deadline) {
			t.Fatal("20 s are over, and the scheduler does not know all nodes")
		}
		time.Sleep(time.Millisecond)
	}
	server := httptest.NewServer(answers.Handler())
	t.Cleanup(func() {
		server.Close()
		shared.Close()
	})
	return engine(server.URL)
}

// twoNodes is what the transcript of placement is about.
func twoNodes(t *testing.T) []runtime.Object {
	t.Helper()
	var objects []runtime.Object
	for _, name := range []string{"node-1", "node-2"} {
		node := newNode(t, name, gpus(4))
		node.ResourceVersion = "1"
		node.Status.Allocatable = corev1.ResourceList{
			"cpu": apiresource.MustParse("8"), "memory": apiresource.MustParse("64Gi"),
			"pods":           apiresource.MustParse("110"),
			"nvidia.com/gpu": apiresource.MustParse("4"),
		}
		objects = append(objects, node)
	}
	pods := []*corev1.Pod{
		bound(t, counting(newPod("notebook"), 2), "node-1",
			map[string]map[string]int64{"main": both(wholeGPU(0), wholeGPU(1))}),
		bound(t, counting(newPod("research/evaluation"), 3), "node-2",
			map[string]map[string]int64{"main": both(wholeGPU(0), both(wholeGPU(1), wholeGPU(2)))}),
		counting(newPod("big"), 4), counting(newPod("small"), 1),
	}
	for _, pod := range pods {
		pod.ResourceVersion, pod.Spec.SchedulerName = "1", corev1.DefaultSchedulerName
		objects = append(objects, pod)
	}
	return objects
}

// What the commands print of the answers of the scheduler's own engine, and their exit statuses.
func TestPlacementTranscript(t *testing.T) {
	objects := twoNodes(t)
	started := startEngine(t, corev1.DefaultSchedulerName, objects...)
	testTranscript(t, "testdata/placement/placement.txt", func() *fixture {
		f := newFixture(objects...)
		f.scheduler = started
		return f
	})
}

// Where KubeDevice's scheduler is a second one, manifests name no scheduler: an admission policy
// brings their pods to it.
func TestPlacementBySecondSchedulerTranscript(t *testing.T) {
	objects := twoNodes(t)
	started := startEngine(t, frameworkplugin.SchedulerName, objects...)
	testTranscript(t, "testdata/placement/second.txt", func() *fixture {
		f := newFixture(objects...)
		f.scheduler = started
		return f
	})
}

// Pods that their node refuses: two at its admission, one whose container is not created, and one
// whose container would be created again.
func TestRefusedTranscript(t *testing.T) {
	objects := twoNodes(t)
	rejected := counting(newPod("rejected"), 1)
	rejected.Spec.NodeName, rejected.Status.Phase = "node-1", corev1.PodFailed
	rejected.Status.Reason = "UnexpectedAdmissionError"
	rejected.Status.Message = "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate " +
		"unhealthy devices nvidia.com/gpu, which is unexpected"
	forged := bound(t, counting(newPod("forged"), 1), "node-1", map[string]map[string]int64{"main": wholeGPU(2)})
	crashed := bound(t, counting(newPod("crashed"), 1), "node-1", map[string]map[string]int64{"main": wholeGPU(3)})
	late := counting(newPod("late"), 1)
	late.Spec.NodeName, late.Status.Phase, late.Status.Reason = "node-1", corev1.PodFailed, "NodeShutdown"
	late.Status.Message = "Pod was rejected: Pod was rejected as the node is shutting down."
	evicted := counting(newPod("evicted"), 1)
	evicted.Spec.NodeName, evicted.Status.Phase, evicted.Status.Reason = "node-1", corev1.PodFailed, "Evicted"
	evicted.Status.Message = "The node was low on resource: memory."
	refuse := func(pod *corev1.Pod, message string, last corev1.ContainerState) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", LastTerminationState: last, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: message},
			},
		}}
	}
	refuse(forged, "pod default/forged has no valid seal", corev1.ContainerState{})
	refuse(crashed, "device gpu/gpu-3 is unhealthy: Xid79",
		corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}})
	for _, pod := range []*corev1.Pod{rejected, late, forged, crashed, evicted} {
		pod.ResourceVersion, pod.Spec.SchedulerName = "1", corev1.DefaultSchedulerName
		objects = append(objects, pod)
	}
	started := startEngine(t, corev1.DefaultSchedulerName, objects...)
	testTranscript(t, "testdata/placement/refused.txt", func() *fixture {
		f := newFixture(objects...)
		f.scheduler = started
		return f
	})
}

// On each node two GPUs are free, in different groups: a count fits, a request for a group waits,
// and less topology is proposed before a pod is ended.
func TestTopologyTranscript(t *testing.T) {
	objects := twoNodes(t)[:2]
	pair := counting(newPod("pair"), 2)
	pair.Annotations = map[string]string{deviceinfo.Annotation: `{"requests":{"gpu/gpu-generate-topology":1}}`}
	for _, pod := range []*corev1.Pod{
		bound(t, counting(newPod("first"), 2), "node-1",
			map[string]map[string]int64{"main": both(wholeGPU(0), wholeGPU(2))}),
		bound(t, counting(newPod("second"), 2), "node-2",
			map[string]map[string]int64{"main": both(wholeGPU(1), wholeGPU(3))}),
		counting(newPod("count"), 2), pair,
	} {
		pod.ResourceVersion, pod.Spec.SchedulerName = "1", corev1.DefaultSchedulerName
		objects = append(objects, pod)
	}
	started := startEngine(t, corev1.DefaultSchedulerName, objects...)
	testTranscript(t, "testdata/placement/topology.txt", func() *fixture {
		f := newFixture(objects...)
		f.scheduler = started
		return f
	})
}

// One replica fits next to what runs. Then only a pod of another manifest is proposed to be ended,
// neither one that runs for the Deployment nor the replica that was placed before.
func TestReplicasTranscript(t *testing.T) {
	objects := twoNodes(t)[:2]
	for i, node := range []string{"node-1", "node-2"} {
		replica := bound(t, counting(newPod(fmt.Sprintf("trainer-%d", i)), 2), node,
			map[string]map[string]int64{"main": both(wholeGPU(0), wholeGPU(1))})
		replica.Labels = map[string]string{"app": "trainer"}
		replica.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "trainer-5d4", UID: "rs", Controller: new(true),
		}}
		replica.ResourceVersion, replica.Spec.SchedulerName = "1", corev1.DefaultSchedulerName
		objects = append(objects, replica)
	}
	urgent := bound(t, counting(newPod("urgent"), 2), "node-2",
		map[string]map[string]int64{"main": both(wholeGPU(2), wholeGPU(3))})
	urgent.Spec.Priority = new(int32(1000))
	urgent.ResourceVersion, urgent.Spec.SchedulerName = "1", corev1.DefaultSchedulerName
	objects = append(objects, urgent)
	started := startEngine(t, corev1.DefaultSchedulerName, objects...)
	testTranscript(t, "testdata/placement/replicas.txt", func() *fixture {
		f := newFixture(objects...)
		f.scheduler = started
		return f
	})
}

// The names of a container's devices must fit into its annotation in the container runtime.
func TestLongNamesTranscript(t *testing.T) {
	var objects []runtime.Object
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		info := types.NewNodeInfo()
		for i := range 100 {
			id := fmt.Sprintf("gpugrp1/0/gpugrp0/%d/gpu/GPU-%0100d/", i/2, i)
			for _, list := range []types.ResourceList{info.Capacity, info.Allocatable} {
				types.AddGroupResource(list, id+"cards", 1)
			}
		}
		info.Capacity["nvidia.com/gpu"], info.Allocatable["nvidia.com/gpu"] = 100, 100
		node := newNode(t, name, info)
		node.ResourceVersion = "1"
		node.Status.Allocatable = corev1.ResourceList{
			"cpu": apiresource.MustParse("8"), "memory": apiresource.MustParse("64Gi"),
			"pods": apiresource.MustParse("110"), "nvidia.com/gpu": apiresource.MustParse("100"),
		}
		objects = append(objects, node)
	}
	many := counting(newPod("many"), 90)
	many.ResourceVersion, many.Spec.SchedulerName = "1", corev1.DefaultSchedulerName
	objects = append(objects, many)
	started := startEngine(t, corev1.DefaultSchedulerName, objects...)
	testTranscript(t, "testdata/placement/long.txt", func() *fixture {
		f := newFixture(objects...)
		f.scheduler = started
		return f
	})
}

// The scheduler has no event for who asks with a manifest: its answer names the mistakes.
func TestPlacementOfMistakesTranscript(t *testing.T) {
	mistaken := counting(newPod("mistaken"), 4)
	mistaken.ResourceVersion, mistaken.Spec.SchedulerName = "1", corev1.DefaultSchedulerName
	mistaken.Annotations = map[string]string{
		deviceinfo.Annotation:                `{"policy":{},"requests":{"numa/A/vendor.example:nic/=eth9/device":0}}`,
		deviceinfo.OnDeviceFailureAnnotation: "evict",
	}
	objects := append(twoNodes(t), mistaken)
	started := startEngine(t, corev1.DefaultSchedulerName, objects...)
	testTranscript(t, "testdata/placement/mistakes.txt", func() *fixture {
		f := newFixture(objects...)
		f.scheduler = started
		return f
	})
}

func TestArgumentsOfPlacementCommandsAreCompleted(t *testing.T) {
	objects := twoNodes(t)
	for line, want := range map[string]string{
		"__complete why b":                       "big :4",
		"__complete why big s":                   ":4",
		"__complete whatif s":                    "small :4",
		"__complete whatif big --without pod/n":  "pod/notebook :4",
		"__complete whatif big --with-node like": "like/node-1 like/node-2 :4",
		"__complete whatif big --cordon node":    "node-1 node-2 :6",
		"__complete fit -f testdata/":            ":0", // files
	} {
		f := newFixture(objects...)
		f.scheduler = engine("")
		stdout, _, status := f.run(t.Context(), line)
		if got := strings.Join(strings.Split(strings.TrimSpace(stdout), "\n"), " "); got != want || status != 0 {
			t.Errorf("%s: got %q, exit status %d; want %q", line, got, status, want)
		}
	}
}

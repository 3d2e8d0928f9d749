// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// writer is a plugin that writes into every map of every argument, as plugins written for the
// published host do: they check none of them for nil. It serves every container by itself.
type writer struct{ called map[string]int }

const written types.ResourceName = "written"

func (w writer) AddNode(_ string, node *types.NodeInfo) {
	w.call("AddNode", node, nil) //nolint:errcheck // it has no way to fail
}
func (w writer) RemoveNode(string) {}

func (w writer) PodFitsDevice(
	node *types.NodeInfo, pod *types.PodInfo, _ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	w.call("PodFitsDevice", node, pod) //nolint:errcheck // the pod fits in any case
	return true, nil, 1
}

func (w writer) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	return w.call("PodAllocate", node, pod)
}

func (w writer) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	return w.call("TakePodResources", node, pod)
}

func (w writer) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	return w.call("ReturnPodResources", node, pod)
}

func (w writer) PodHolds(_, _ string, pod *types.PodInfo) {
	w.call("PodHolds", nil, pod) //nolint:errcheck // it has no way to fail
}
func (w writer) PodGone(string, string)    {}
func (w writer) GetName() string           { return "writer" }
func (w writer) UsingGroupScheduler() bool { return false }

func (w writer) call(method string, node *types.NodeInfo, pod *types.PodInfo) error {
	w.called[method]++
	if node != nil {
		writeLists(node.Capacity, node.Allocatable, node.Used, node.KubeCap, node.KubeAlloc)
		node.Scorer[written] = 1
	}
	if pod != nil {
		writeLists(pod.Requests)
		for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
			for _, container := range containers {
				writeLists(container.KubeRequests, container.Requests, container.DevRequests)
				container.AllocateFrom[written], container.Scorer[written] = written, 1
			}
			containers["another"] = types.ContainerInfo{}
		}
	}
	return nil
}

func writeLists(lists ...types.ResourceList) {
	for _, list := range lists {
		list[written] = 1
	}
}

// The abilities on which it depends which copies a plugin gets, and how often.
type (
	pureWriter       struct{ writer }
	translatorWriter struct{ writer }
	specialistWriter struct{ writer }
)

func (pureWriter) Pure() bool             { return true }
func (translatorWriter) Revision() uint64 { return 1 }

func (specialistWriter) Kinds() devicescheduler.Kinds {
	return devicescheduler.Kinds{Plain: []types.ResourceName{"nvidia.com/gpu", written}, Levels: []string{"gpu"}}
}

var writers = map[string]func(writer) devicescheduler.DeviceScheduler{
	"plain":      func(w writer) devicescheduler.DeviceScheduler { return w },
	"pure":       func(w writer) devicescheduler.DeviceScheduler { return pureWriter{w} },
	"translator": func(w writer) devicescheduler.DeviceScheduler { return translatorWriter{w} },
	"specialist": func(w writer) devicescheduler.DeviceScheduler { return specialistWriter{w} },
}

// TestAPluginMayWriteIntoEveryMap drives the writer through everything that the scheduler calls,
// with pods that have as little as a pod can have.
func TestAPluginMayWriteIntoEveryMap(t *testing.T) {
	one := v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}
	always := v1.ContainerRestartPolicyAlways
	app := v1.Container{Name: "app", Resources: one}
	setup := v1.Container{Name: "setup", Resources: one}
	other := v1.Container{Name: "other"}
	sidecar := v1.Container{Name: "sidecar", RestartPolicy: &always}

	const (
		requestOfApp = `{"runningcontainer":{"app":{"requests":{"gpu/a/cards":1}}}}`
		emptyLists   = `{"requests":{},"runningcontainer":{"app":{}}}`
	)
	spec := func(initial, running []v1.Container) v1.PodSpec {
		return v1.PodSpec{InitContainers: initial, Containers: running}
	}
	type list = []v1.Container
	pods := map[string]struct {
		annotation string
		spec       v1.PodSpec
		refused    bool
	}{
		"no annotation":          {spec: spec(nil, list{app, other})},
		"an empty annotation":    {annotation: "{}", spec: spec(nil, list{app})},
		"empty lists":            {annotation: emptyLists, spec: spec(nil, list{app})},
		"one container of two":   {annotation: requestOfApp, spec: spec(nil, list{app, other})},
		"init containers only":   {annotation: "{}", spec: spec(list{setup}, nil)},
		"a sidecar":              {spec: spec(list{sidecar, setup}, list{other})},
		"an allocation, no list": {annotation: `{"nodename":"n"}`, spec: spec(nil, list{app})},
		"an unknown container":   {annotation: requestOfApp, spec: spec(nil, list{other}), refused: true},
		"a container, in other list": {
			annotation: `{"initcontainer":{"app":{}}}`, spec: spec(nil, list{app}), refused: true,
		},
	}
	for kind, plugin := range writers {
		for name, test := range pods {
			t.Run(kind+"/"+name, func(t *testing.T) {
				called := map[string]int{}
				pod := &v1.Pod{Spec: test.spec}
				pod.Name, pod.Annotations = "p", map[string]string{}
				if test.annotation != "" {
					pod.Annotations[deviceinfo.Annotation] = test.annotation
				}
				drive(t, plugin(writer{called}), pod, test.refused)
				methods := slices.Sorted(maps.Keys(called))
				want := []string{"AddNode", "PodAllocate", "PodFitsDevice", "PodHolds", "TakePodResources"}
				if test.refused {
					want = []string{"AddNode"}
				}
				if diff := cmp.Diff(want, methods); diff != "" {
					t.Errorf("methods that were called (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// drive schedules a pod with one plugin on one node, and lets the node have the pod.
func drive(t *testing.T, plugin devicescheduler.DeviceScheduler, pod *v1.Pod, refused bool) {
	logger, ctx := ktesting.NewTestContext(t)
	set := allocation.New(logger, nil, allocation.Named{File: "writer.so", Plugin: plugin})
	inventory, err := set.AddNode(ctx, &types.NodeInfo{
		Name: "n", Capacity: types.ResourceList{"nvidia.com/gpu": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	node, err := set.Node(ctx, inventory, nil)
	if err != nil {
		t.Fatal(err)
	}

	request, err := requestOf(pod)
	if refused {
		if !errors.Is(err, deviceinfo.ErrMalformed) {
			t.Errorf("the request is read with the error %v, want one that refuses the annotation", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	before := request.Pod.Clone()
	if verdict, err := set.Fit(ctx, node, request); err != nil || !verdict.Fits {
		t.Fatalf("Fit = %+v, %v", verdict, err)
	}
	allocated, err := set.Allocate(ctx, node, request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, request.Pod.Clone()); diff != "" {
		t.Errorf("the plugin has changed the request (-before +after):\n%s", diff)
	}
	annotation, err := deviceinfo.EncodePod(allocated)
	if err != nil {
		t.Fatal(err)
	}

	// The pod as its annotation and its spec give it, and one whose annotation has no container.
	for uid, annotation := range map[string]string{"u1": annotation, "u2": `{"podname":"p","nodename":"n"}`} {
		bound := pod.DeepCopy()
		bound.Spec.NodeName, bound.Annotations[deviceinfo.Annotation] = "n", annotation
		held, err := deviceinfo.PodAllocation(bound)
		if err != nil {
			t.Fatal(err)
		}
		set.PodHolds(ctx, "n", uid, held)
		node, err = set.Node(ctx, inventory, []*allocation.Holder{allocation.NewHolder(uid, held, request.Containers)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if verdict, err := set.Fit(ctx, node, request); err != nil || !verdict.Fits {
		t.Errorf("on a node with a pod: Fit = %+v, %v", verdict, err)
	}
}

// requestOf returns what a pod requests, as the scheduler reads it.
func requestOf(pod *v1.Pod) (*request.Request, error) {
	info := &types.PodInfo{}
	if annotation := pod.Annotations[deviceinfo.Annotation]; annotation != "" {
		var err error
		if info, err = deviceinfo.DecodePod(annotation); err != nil {
			return nil, err
		}
	}
	info, err := deviceinfo.PodRequest(pod, info)
	if err != nil {
		return nil, err
	}
	request := &request.Request{Pod: info}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			kind := grouptree.Regular
			if _, initial := info.InitContainers[container.Name]; initial {
				kind = grouptree.Init
			} else if container.RestartPolicy != nil {
				kind = grouptree.Sidecar
			}
			request.Containers = append(request.Containers, grouptree.Container{Name: container.Name, Kind: kind})
		}
	}
	return request, nil
}

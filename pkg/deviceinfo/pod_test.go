// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// resources returns a container's requests, or limits.
func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// training is a pod with an init container, a sidecar and a container.
func training(value string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return annotated(value, func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "prepare"}, {Name: "proxy", RestartPolicy: &always}}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Limits:   resources("nvidia.com/gpu", "2", "memory", "2Gi"),
			Requests: resources("cpu", "1500m", "memory", "1Gi"),
		}
	})
}

func TestPodRequestCombinesAnnotationAndSpec(t *testing.T) {
	kube := types.ResourceList{"cpu": 2, "memory": 1 << 30, "nvidia.com/gpu": 2}
	none := types.ContainerInfo{KubeRequests: types.ResourceList{}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want types.PodInfo
	}{
		"without an annotation": {
			training(""),
			types.PodInfo{
				Name: "train", InitContainers: map[string]types.ContainerInfo{"prepare": none},
				RunningContainers: map[string]types.ContainerInfo{"main": {KubeRequests: kube}, "proxy": none},
			},
		},
		"a topology by hand stays as it was written": {
			training(
				`{"requests":{"gpu/x":1},"runningcontainer":{"main":{"requests":{"gpugrp0/A/gpu/a/cards":1,` +
					`"resource/group/gpu/b/cards":1},"scorer":{"gpugrp0/A/gpu/a/cards":1}}}}`,
			),
			types.PodInfo{
				Name: "train", Requests: types.ResourceList{"gpu/x": 1},
				InitContainers: map[string]types.ContainerInfo{"prepare": none},
				RunningContainers: map[string]types.ContainerInfo{
					"main": {
						KubeRequests: kube,
						Requests:     types.ResourceList{"gpugrp0/A/gpu/a/cards": 1, "resource/group/gpu/b/cards": 1},
						Scorer:       types.ResourceScorer{"gpugrp0/A/gpu/a/cards": 1},
					},
					"proxy": none,
				},
			},
		},
		"a user's values in the scheduler's fields are discarded": {
			training(allocated),
			types.PodInfo{
				Name: "train", InitContainers: map[string]types.ContainerInfo{"prepare": none},
				RunningContainers: map[string]types.ContainerInfo{"main": {KubeRequests: kube}, "proxy": none},
			},
		},
		"init containers and sidecars request devices, too": {
			training(
				`{"podname":"other","initcontainer":{"prepare":{"requests":{"a":1}}},` +
					`"runningcontainer":{"proxy":{"requests":{"b":2}}}}`,
			),
			types.PodInfo{
				Name: "train",
				InitContainers: map[string]types.ContainerInfo{
					"prepare": {KubeRequests: types.ResourceList{}, Requests: types.ResourceList{"a": 1}},
				},
				RunningContainers: map[string]types.ContainerInfo{
					"main":  {KubeRequests: kube},
					"proxy": {KubeRequests: types.ResourceList{}, Requests: types.ResourceList{"b": 2}},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := requestOf(test.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// requestOf reads the pod's annotation, if it has one, and returns its request.
func requestOf(pod *corev1.Pod) (*types.PodInfo, error) {
	value := pod.Annotations[Annotation]
	if value == "" {
		return PodRequest(pod, &types.PodInfo{})
	}
	written, err := DecodePod(value)
	if err != nil {
		return nil, err
	}
	return PodRequest(pod, written)
}

func TestPodRequestErrorNamesTheUnknownContainer(t *testing.T) {
	for name, test := range map[string]struct{ value, want string }{
		"unknown": {`{"runningcontainer":{"mian":{}}}`, `runningcontainer["mian"]: the pod has no ` +
			`such container; use one of the names in the pod's spec: ["main" "proxy"]`},
		"unknown among init": {`{"initcontainer":{"x":{}}}`, `initcontainer["x"]: the pod has no such ` +
			`container; use one of the names in the pod's spec: ["prepare"]`},
		"sidecar among init": {`{"initcontainer":{"proxy":{}}}`, `initcontainer["proxy"]: the container runs ` +
			`along with the others; write it under runningcontainer`},
		"container among init": {`{"initcontainer":{"main":{}}}`, `write it under runningcontainer`},
		"init among running ones": {`{"runningcontainer":{"prepare":{}}}`, `runningcontainer["prepare"]: the ` +
			`container is an init container; write it under initcontainer`},
		"not readable": {`{"runningcontainer":[]}`, `runningcontainer: it is a list; write an object`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := requestOf(training(test.value))
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want it to have %q", err, test.want)
			}
		})
	}
}

func TestPodAllocationReadsBoundPodsOnly(t *testing.T) {
	bound := func(value string) *corev1.Pod {
		pod := training(value)
		onNode(pod)
		return pod
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want error
	}{
		"bound by the device scheduler":                {bound(allocated), nil},
		"not bound, with a stale or forged allocation": {training(allocated), ErrNoAllocation},
		"bound without an annotation":                  {bound(""), ErrNoAllocation},
		"bound by another scheduler":                   {bound(requestsGPU), ErrNoAllocation},
		"bound to another node": {
			bound(strings.Replace(allocated, `"n1"`, `"n2"`, 1)), ErrForeignAllocation,
		},
		"copied from another pod": {
			bound(strings.Replace(allocated, `"train"`, `"other"`, 1)), ErrForeignAllocation,
		},
		"without the pod's name": {
			bound(strings.Replace(allocated, `"podname":"train",`, ``, 1)), ErrForeignAllocation,
		},
		"not readable": {bound(allocated + "}"), ErrMalformed},
		"for a container that the pod does not have": {
			bound(strings.Replace(allocated, `"main"`, `"mian"`, 1)), ErrMalformed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := PodAllocation(test.pod)
			if test.pod.Spec.NodeName != "" && name != "not readable" {
				bound, written := boundPod(t, test.pod)
				same, sameErr := bound.Allocation(written)
				if fmt.Sprint(sameErr) != fmt.Sprint(err) || !errors.Is(sameErr, test.want) {
					t.Errorf("the node's error is %v, want %v", sameErr, err)
				}
				if diff := cmp.Diff(
					info, same, cmpopts.IgnoreFields(types.ContainerInfo{}, "KubeRequests"),
				); diff != "" {
					t.Errorf("the node has another allocation (-pod +node):\n%s", diff)
				}
			}
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			if err != nil {
				return
			}
			want := types.ContainerInfo{
				KubeRequests: types.ResourceList{"cpu": 2, "memory": 1 << 30, "nvidia.com/gpu": 2},
				DevRequests:  types.ResourceList{"resource/group/gpu/a/cards": 1},
				AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": "resource/group/gpu/GPU-0/cards"},
			}
			if diff := cmp.Diff(want, info.RunningContainers["main"]); diff != "" {
				t.Errorf("allocation (-want +got):\n%s", diff)
			}
			if _, ok := info.RunningContainers["proxy"]; !ok {
				t.Error("the sidecar is not among the running containers")
			}
		})
	}
}

// boundPod returns the data of the pod that a node has, and its decoded annotation.
func boundPod(t *testing.T, pod *corev1.Pod) (bound BoundPod, written *types.PodInfo) {
	t.Helper()
	bound = BoundPod{
		Name: pod.Name, NodeName: pod.Spec.NodeName,
		InitContainers: []string{"prepare"}, RunningContainers: []string{"proxy", "main"},
	}
	if value, annotated := pod.Annotations[Annotation]; annotated {
		var err error
		if written, err = DecodePod(value); err != nil {
			t.Fatal(err)
		}
	}
	return bound, written
}

func TestAllocationMustFitNextToOtherAnnotations(t *testing.T) {
	others := map[string]string{
		"other":    strings.Repeat("x", MaxBytes-len("other")-len(Annotation)-100),
		Annotation: strings.Repeat("x", 1000),
	}
	if err := CheckSize(others, strings.Repeat("x", 90), 10); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := CheckSize(others, strings.Repeat("x", 90), 11); err == nil ||
		!strings.Contains(err.Error(), "262145 bytes") {
		t.Errorf("beyond the limit: error %v, want one that names the size", err)
	}
}

func TestMayAllocateMissesNoAllocation(t *testing.T) {
	escaped := `{"podname":"p","\u006eodename":"n","runningcontainer":{"main":{"allocatefrom":{"a":"b"}}}}`
	for _, value := range []string{escaped, strings.ReplaceAll(escaped, `\u006e`, "n")} {
		if info, err := DecodePod(value); err != nil || info.NodeName != "n" {
			t.Errorf("%s is read as %+v, %v", value, info, err)
		}
		if !MayAllocate(value) {
			t.Errorf("MayAllocate misses %s", value)
		}
	}
	for _, value := range []string{"", "{}", `{"requests":{"gpu/nodename/cards":1}}`} {
		if MayAllocate(value) {
			t.Errorf("%q would be decoded in vain", value)
		}
	}
}

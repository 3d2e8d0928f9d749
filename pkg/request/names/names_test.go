// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// podWith returns a pod with annotations, and with these limits of its container main.
func podWith(annotations, limits map[string]string) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	pod.Annotations = annotations
	list := corev1.ResourceList{}
	for name, quantity := range limits {
		list[corev1.ResourceName(name)] = apiresource.MustParse(quantity)
	}
	pod.Spec.Containers[0].Resources.Limits = list
	return pod
}

func TestAPodWithoutTheseNamesCompilesToNothing(t *testing.T) {
	pod := podWith(map[string]string{"gpu": "1", "nvidia.com/other": "x"}, map[string]string{"nvidia.com/gpu": "2"})
	if compiled := Compile(pod); compiled != nil || Requests(pod) {
		t.Errorf("it requests %v: %+v", Requests(pod), compiled)
	}
}

func TestNamesThatChooseDevicesRequestNone(t *testing.T) {
	pod := podWith(map[string]string{useType: "A100"}, map[string]string{"nvidia.com/gpu": "2"})
	if compiled := Compile(pod); compiled == nil || Requests(pod) {
		t.Errorf("it requests %v: %+v", Requests(pod), compiled)
	}
}

func TestAllErrorsOfAPodAreNamedInTheirOrder(t *testing.T) {
	pod := podWith(map[string]string{vgpuMode: "mig", fraction: "2", numaBind: "no"},
		map[string]string{string(hamiPriority): "1", string(hamiPercentage): "200"})
	var keys []string
	for _, err := range Compile(pod).Errors {
		keys = append(keys, err.Key)
	}
	want := []string{string(hamiPercentage), string(hamiPriority), numaBind, vgpuMode, fraction}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestAChangeOfOtherAnnotationsIsNone(t *testing.T) {
	pod := func(key, value string) *corev1.Pod {
		return podWith(map[string]string{fraction: "0.5", key: value}, nil)
	}
	for name, test := range map[string]struct {
		before, after *corev1.Pod
		same          bool
	}{
		"another annotation comes": {podWith(map[string]string{fraction: "0.5"}, nil), pod("other", "x"), true},
		"a value changes":          {pod(fractionDevices, "1"), pod(fractionDevices, "2"), false},
		"one comes":                {pod("other", "x"), pod(fractionDevices, "2"), false},
		"one goes":                 {pod(containerPrefix+"main"+memoryLimit, "1Gi"), pod("other", "x"), false},
	} {
		if got := SameAnnotations(test.before, test.after); got != test.same {
			t.Errorf("%s: the same is %v", name, got)
		}
	}
}

// What cannot be served is an error, and what can be is as much of each of as many devices as is
// written: no value makes a request for nothing, or for what is not written.
func FuzzEveryNameIsARequestOrAnError(f *testing.F) {
	f.Add("0.5", "", "2", "", "3000", int64(2))
	f.Add("", "2000", "1", "main", "", int64(0))
	f.Add("1e-7", "x", "-1", "other", "1Gi", int64(-3))
	f.Fuzz(func(t *testing.T, part, memory, devices, container, perContainer string, gpumem int64) {
		annotations := map[string]string{}
		for key, value := range map[string]string{
			fraction: part, kaiMemory: memory, fractionDevices: devices, fractionContainer: container,
			containerPrefix + "main" + memoryRequest: perContainer,
		} {
			if value != "" {
				annotations[key] = value
			}
		}
		pod := podWith(annotations, map[string]string{string(hamiMemory): fmt.Sprint(gpumem)})
		compiled := Compile(pod)
		if compiled == nil {
			t.Fatal("the pod has a name, and nothing is compiled")
		}
		for name, requests := range compiled.Requests {
			seen := map[types.ResourceName]bool{}
			for request, quantity := range requests {
				device := request[:strings.LastIndexByte(string(request), '/')]
				if quantity < 1 || seen[device] {
					t.Errorf("container %q requests %d of %s", name, quantity, request)
				}
				seen[device] = true
			}
			if len(requests) > maxGPUs {
				t.Errorf("container %q makes %d requests", name, len(requests))
			}
		}
	})
}

func TestAGPUIsChosenByModelAndID(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		id, model   string
		want        bool
	}{
		"nothing is chosen":           {nil, "a", "", true},
		"a part of the model":         {map[string]string{useType: "T4, h100"}, "a", "NVIDIA H100 80GB HBM3", true},
		"another model":               {map[string]string{useType: "T4,A100"}, "a", "NVIDIA H100 80GB HBM3", false},
		"a model that is left out":    {map[string]string{noUseType: "T4,H100"}, "a", "NVIDIA H100 80GB HBM3", false},
		"one that is not":             {map[string]string{noUseType: "T4"}, "a", "NVIDIA H100 80GB HBM3", true},
		"an unknown model":            {map[string]string{useType: "T4"}, "a", "", false},
		"one that may be left out":    {map[string]string{noUseType: "T4"}, "a", "", false},
		"an ID":                       {map[string]string{useUUID: "b, a"}, "a", "", true},
		"another ID":                  {map[string]string{useUUID: "b"}, "a", "", false},
		"the beginning of an ID":      {map[string]string{useUUID: "a"}, "ab", "", false},
		"an ID that is left out":      {map[string]string{noUseUUID: "a"}, "a", "", false},
		"an ID, and the model not":    {map[string]string{useUUID: "a", useType: "T4"}, "a", "H100", false},
		"a list that is refused":      {map[string]string{useUUID: "b,"}, "a", "", true},
		"a list that is far too long": {map[string]string{useUUID: strings.Repeat("b", maxChoice+1)}, "a", "", true},
	} {
		choice := ChoiceOf(podWith(test.annotations, nil))
		if got := choice.Has(test.id, test.model); got != test.want {
			t.Errorf("%s: %v of %+v", name, got, choice)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// counting is a plugin that says which of its devices a plain resource counts.
type counting struct {
	devicescheduler.DeviceScheduler
	counted []devicescheduler.CountedDevice
}

func (counting) GetName() string                                   { return "counting" }
func (counting) UsingGroupScheduler() bool                         { return true }
func (c counting) CountedDevices() []devicescheduler.CountedDevice { return c.counted }

func TestRequestsBeyondTheLimitsAreFound(t *testing.T) {
	const gpu, widget, nic types.ResourceName = "nvidia.com/gpu", "example.com/widget", "vendor.example/nic"
	set := allocation.New(klog.Background(), nil,
		allocation.Named{File: "built in", Plugin: kubeletplugin.New()},
		allocation.Named{File: "a.so", Plugin: counting{counted: []devicescheduler.CountedDevice{
			{Plain: gpu, Level: "gpu", Resource: "cards"},
		}}},
		allocation.Named{File: "b.so", Plugin: counting{counted: []devicescheduler.CountedDevice{
			{Plain: "other.example/gpu", Level: "gpu", Resource: "cards"}, // a.so is first
			{Plain: widget, Level: "widget", Resource: "cards"},
		}}},
	)
	type list = types.ResourceList
	uncovered := func(resource types.ResourceName, requested, limit int64) []request.Uncovered {
		return []request.Uncovered{{Container: "main", Resource: resource, Requested: requested, Limit: limit}}
	}
	for name, test := range map[string]struct {
		requests, limits list
		want             []request.Uncovered
	}{
		"nothing":                     {},
		"a limit alone":               {limits: list{gpu: 8}},
		"paths and their limit":       {list{"gpu/a/cards": 1, "gpu/b/cards": 1}, list{gpu: 2}, nil},
		"a larger limit":              {list{"gpu/a/cards": 1}, list{gpu: 2}, nil},
		"paths without a limit":       {list{"gpu/a/cards": 1, "gpu/b/cards": 1}, nil, uncovered(gpu, 2, 0)},
		"a limit of another resource": {list{"gpu/a/cards": 1}, list{widget: 1, "cpu": 4}, uncovered(gpu, 1, 0)},
		"paths beyond the limit":      {list{"gpu/a/cards": 1, "gpu/b/cards": 1}, list{gpu: 1}, uncovered(gpu, 2, 1)},
		"paths in groups": {
			list{"gpugrp1/0/gpugrp0/A/gpu/a/cards": 1, "resource/group/gpugrp0/B/gpu/b/cards": 1}, list{gpu: 1},
			uncovered(gpu, 2, 1),
		},
		"one path in two forms":   {list{"gpu/a/cards": 1, "resource/group/gpu/a/cards": 1}, list{gpu: 1}, nil},
		"a path for several":      {list{"gpu/a/cards": 3}, list{gpu: 1}, uncovered(gpu, 3, 1)},
		"a count":                 {list{gpu: 8}, list{gpu: 1}, uncovered(gpu, 8, 1)},
		"a count and fewer paths": {list{gpu: 3, "gpu/a/cards": 1}, list{gpu: 3}, nil},
		"a count and more paths": {
			list{gpu: 1, "gpu/a/cards": 1, "gpu/b/cards": 1}, list{gpu: 1}, uncovered(gpu, 2, 1),
		},
		"a part of a device":           {list{"gpu/a/memory": 1 << 30}, nil, nil},
		"none of a device":             {list{"gpu/a/cards": 0}, nil, nil},
		"how devices are chosen":       {list{"gpu/gpu-generate-topology": 1}, nil, nil},
		"devices of no known kind":     {list{"tpu/a/cards": 1}, nil, nil},
		"another plugin's devices":     {list{"board/A/widget/0/cards": 1}, nil, uncovered(widget, 1, 0)},
		"a kubelet's device":           {list{"numa/A/vendor.example:nic/0/device": 1}, nil, uncovered(nic, 1, 0)},
		"a kubelet's device by its ID": {list{"numa/A/vendor.example:nic/=x/device": 1}, nil, uncovered(nic, 1, 0)},
		"a kubelet's device ruled out": {list{"numa/A/vendor.example:nic/=x/device": 0}, nil, nil},
		"several of a kubelet's":       {list{"numa/A/vendor.example:nic": 4}, list{nic: 3}, uncovered(nic, 4, 3)},
		"several of a kubelet's and one": {
			list{"numa/A/vendor.example:nic": 2, "resource/group/numa/B/vendor.example:nic/0/device": 1}, list{nic: 2},
			uncovered(nic, 3, 2),
		},
		"more than can be added up": {
			list{"gpu/a/cards": math.MaxInt64, "gpu/b/cards": math.MaxInt64}, nil, uncovered(gpu, math.MaxInt64, 0),
		},
		"two resources": {
			list{"gpu/a/cards": 1, "widget/a/cards": 1}, nil, append(uncovered(widget, 1, 0), uncovered(gpu, 1, 0)...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
				"main": {Requests: test.requests, KubeRequests: test.limits},
			}}
			request := &request.Request{Pod: pod, Containers: []grouptree.Container{{Name: "main"}}}
			if diff := cmp.Diff(test.want, set.Uncovered(request)); diff != "" {
				t.Errorf("uncovered (-want +got):\n%s", diff)
			}
		})
	}
}

func TestThePartsThatAPodRequests(t *testing.T) {
	set := allocation.New(klog.Background(), nil,
		allocation.Named{File: "built in", Plugin: kubeletplugin.New()},
		allocation.Named{File: "a.so", Plugin: counting{counted: []devicescheduler.CountedDevice{
			{Plain: "nvidia.com/gpu", Level: "gpu", Resource: "cards"},
			{Plain: "example.com/widget", Level: "widget", Resource: "cards"},
		}}},
	)
	type list = types.ResourceList
	gpus := []types.ResourceName{"nvidia.com/gpu"}
	for name, test := range map[string]struct {
		pod, main list
		want      []types.ResourceName
	}{
		"nothing":              {},
		"whole devices":        {main: list{"gpu/a/cards": 1, "nvidia.com/gpu": 1}},
		"how they are chosen":  {main: list{"gpu/gpu-generate-topology": 1}},
		"none of a part":       {main: list{"gpu/a/memory": 0}},
		"a part":               {main: list{"gpu/a/memory": 1}, want: gpus},
		"a part for the pod":   {pod: list{"gpu/a/memory": 1}, want: gpus},
		"a part in a group":    {main: list{"gpugrp0/A/gpu/a/memory": 1}, want: gpus},
		"a device with a part": {main: list{"gpu/a/cards": 1, "gpu/a/memory": 1}, want: gpus},
		"a kubelet's device":   {main: list{"numa/A/vendor.example:nic/0/device": 1}},
		"a part of two kinds": {
			main: list{"gpu/a/memory": 1, "widget/a/x": 1},
			want: []types.ResourceName{"example.com/widget", "nvidia.com/gpu"},
		},
		"a device of no plugin's": {main: list{"tpu/a/memory": 1}},
	} {
		pod := &types.PodInfo{Requests: test.pod, RunningContainers: map[string]types.ContainerInfo{
			"main": {Requests: test.main},
		}}
		got := set.Parts(&request.Request{Pod: pod, Containers: []grouptree.Container{{Name: "main"}}})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A limit covers what the same container requests, whichever kind of container that is.
func TestEachContainerNeedsItsOwnLimits(t *testing.T) {
	const gpu types.ResourceName = "nvidia.com/gpu"
	set := allocation.New(klog.Background(), nil, allocation.Named{File: "a.so", Plugin: counting{
		counted: []devicescheduler.CountedDevice{{Plain: gpu, Level: "gpu", Resource: "cards"}},
	}})
	one := types.ContainerInfo{Requests: types.ResourceList{"gpu/a/cards": 1}}
	limited := types.ContainerInfo{KubeRequests: types.ResourceList{gpu: 8}}
	pod := &request.Request{
		Pod: &types.PodInfo{
			Requests:          types.ResourceList{"gpu/a/cards": 1},
			InitContainers:    map[string]types.ContainerInfo{"first": one},
			RunningContainers: map[string]types.ContainerInfo{"sidecar": one, "main": one, "rest": limited},
		},
		Containers: []grouptree.Container{
			{Name: "first", Kind: grouptree.Init}, {Name: "sidecar", Kind: grouptree.Sidecar},
			{Name: "main"}, {Name: "rest"},
		},
	}
	var want []request.Uncovered
	for _, name := range []string{"", "first", "sidecar", "main"} {
		want = append(want, request.Uncovered{Container: name, Resource: gpu, Requested: 1})
	}
	if diff := cmp.Diff(want, set.Uncovered(pod)); diff != "" {
		t.Errorf("uncovered (-want +got):\n%s", diff)
	}
}

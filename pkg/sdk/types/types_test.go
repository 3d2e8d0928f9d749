// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package types_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestNewValuesHaveAllMapsMade(t *testing.T) {
	for name, value := range map[string]any{
		"NewContainerInfo":    types.NewContainerInfo(),
		"FillContainerInfo":   types.FillContainerInfo(&types.ContainerInfo{Requests: types.ResourceList{"a": 1}}),
		"NewPodInfo":          types.NewPodInfo(),
		"NewNodeInfo":         types.NewNodeInfo(),
		"NewNodeInfoWithName": types.NewNodeInfoWithName("n1"),
	} {
		fields := reflect.ValueOf(value).Elem()
		for i := range fields.NumField() {
			if field := fields.Field(i); field.Kind() == reflect.Map && field.IsNil() {
				t.Errorf("%s: %s is nil", name, fields.Type().Field(i).Name)
			}
		}
	}
}

func TestACloneSharesNoMap(t *testing.T) {
	node := types.NewNodeInfoWithName("n1")
	fill(node, 1)
	clone := node.Clone()
	if !reflect.DeepEqual(clone, node) {
		t.Fatalf("clone = %+v, want %+v", clone, node)
	}
	fill(node, 2)
	original := types.NewNodeInfoWithName("n1")
	fill(original, 1)
	if !reflect.DeepEqual(clone, original) {
		t.Errorf("the clone changed with the node: %+v", clone)
	}
}

// fill sets an entry of each map of node.
func fill(node *types.NodeInfo, value int64) {
	fields := reflect.ValueOf(node).Elem()
	for i := range fields.NumField() {
		if field := fields.Field(i); field.Kind() == reflect.Map {
			field.SetMapIndex(reflect.ValueOf(types.ResourceName("a")), reflect.ValueOf(value).Convert(field.Type().Elem()))
		}
	}
}

func TestAContainerIsFoundByName(t *testing.T) {
	pod := types.NewPodInfo()
	pod.RunningContainers["app"] = types.ContainerInfo{Requests: types.ResourceList{"a": 1}}
	pod.InitContainers["setup"] = types.ContainerInfo{Requests: types.ResourceList{"a": 2}}

	for name, want := range map[string]int64{"app": 1, "setup": 2} {
		container := pod.GetContainerInPod(name)
		if container == nil || container.Requests["a"] != want || container.AllocateFrom == nil {
			t.Errorf("%s: %+v", name, container)
		}
	}
	if got := pod.GetContainerInPod("other"); got != nil {
		t.Errorf("other: %+v, want nil", got)
	}
}

func TestTheJSONIsWhatAnnotationsInTheFieldSay(t *testing.T) {
	pod := &types.PodInfo{
		Name: "p", NodeName: "n",
		Requests:       types.ResourceList{"gpu/gpu-generate-topology": 1},
		InitContainers: map[string]types.ContainerInfo{"i": {}},
		RunningContainers: map[string]types.ContainerInfo{"r": {
			KubeRequests: types.ResourceList{"cpu": 1},
			Requests:     types.ResourceList{"a": 1},
			DevRequests:  types.ResourceList{"b": 2},
			AllocateFrom: types.ResourceLocation{"b": "c"},
			Scorer:       types.ResourceScorer{"b": 1},
		}},
	}
	node := types.NewNodeInfoWithName("n")
	fill(node, 1)
	for want, value := range map[string]any{
		`{"podname":"p","nodename":"n","requests":{"gpu/gpu-generate-topology":1},"initcontainer":{"i":{}},` +
			`"runningcontainer":{"r":{"requests":{"a":1},"devrequests":{"b":2},"allocatefrom":{"b":"c"},"scorer":{"b":1}}}}`: pod,
		`{"name":"n","capacity":{"a":1},"allocatable":{"a":1},"used":{"a":1},"scorer":{"a":1}}`: node,
	} {
		got, err := json.Marshal(value)
		if err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

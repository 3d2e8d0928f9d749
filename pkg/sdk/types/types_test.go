// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package types_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestNoMapOfAFreshValueOrACloneIsNil(t *testing.T) {
	container := map[string]types.ContainerInfo{"c": {Requests: types.ResourceList{"a": 1}}, "d": {}}
	for name, value := range map[string]any{
		"NewContainerInfo":      types.NewContainerInfo(),
		"FillContainerInfo":     types.FillContainerInfo(&types.ContainerInfo{Requests: types.ResourceList{"a": 1}}),
		"NewPodInfo":            types.NewPodInfo(),
		"GetContainerInPod":     (&types.PodInfo{RunningContainers: container}).GetContainerInPod("d"),
		"NewNodeInfo":           types.NewNodeInfo(),
		"NewNodeInfoWithName":   types.NewNodeInfoWithName("n1"),
		"ContainerInfo.Clone":   (&types.ContainerInfo{}).Clone(),
		"PodInfo.Clone, empty":  (&types.PodInfo{}).Clone(),
		"PodInfo.Clone":         (&types.PodInfo{InitContainers: container, RunningContainers: container}).Clone(),
		"NodeInfo.Clone, empty": (&types.NodeInfo{}).Clone(),
		"NodeInfo.Clone":        (&types.NodeInfo{Used: types.ResourceList{"a": 1}}).Clone(),
	} {
		for _, path := range nilMaps(reflect.ValueOf(value).Elem()) {
			t.Errorf("%s: %s is nil", name, path)
		}
	}
}

// nilMaps returns the paths of all nil maps in a struct, in the structs that its maps hold too.
func nilMaps(value reflect.Value) (paths []string) {
	for i := range value.NumField() {
		field, name := value.Field(i), value.Type().Field(i).Name
		if field.Kind() != reflect.Map {
			continue
		}
		if field.IsNil() {
			paths = append(paths, name)
		}
		for entry := field.MapRange(); entry.Next(); {
			if entry.Value().Kind() == reflect.Struct {
				for _, inner := range nilMaps(entry.Value()) {
					paths = append(paths, name+"["+entry.Key().String()+"]."+inner)
				}
			}
		}
	}
	return paths
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

	pod := func(value int64) *types.PodInfo {
		return &types.PodInfo{
			Name: "p", NodeName: "n", Requests: types.ResourceList{"a": value},
			InitContainers:    map[string]types.ContainerInfo{"i": *container(value)},
			RunningContainers: map[string]types.ContainerInfo{"r": *container(value)},
		}
	}
	first := pod(1)
	podClone := first.Clone()
	if !reflect.DeepEqual(podClone, first) {
		t.Fatalf("clone = %+v, want %+v", podClone, first)
	}
	first.Requests["a"] = 2
	for _, containers := range []map[string]types.ContainerInfo{first.InitContainers, first.RunningContainers} {
		for name, info := range containers {
			fill(&info, 2)
			containers[name+"2"] = info
		}
	}
	if !reflect.DeepEqual(podClone, pod(1)) {
		t.Errorf("the clone changed with the pod: %+v", podClone)
	}
}

// container returns a container with an entry in each map.
func container(value int64) *types.ContainerInfo {
	info := types.NewContainerInfo()
	fill(info, value)
	return info
}

// fill sets an entry of each map of quantities, scorers or locations.
func fill(info any, value int64) {
	fields := reflect.ValueOf(info).Elem()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if field.Kind() != reflect.Map {
			continue
		}
		entry := reflect.ValueOf(value)
		if field.Type().Elem().Kind() == reflect.String {
			entry = reflect.ValueOf(strconv.FormatInt(value, 10))
		}
		field.SetMapIndex(reflect.ValueOf(types.ResourceName("a")), entry.Convert(field.Type().Elem()))
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
			`"runningcontainer":{"r":{"requests":{"a":1},"devrequests":{"b":2},"allocatefrom":{"b":"c"},` +
			`"scorer":{"b":1}}}}`: pod,
		`{"name":"n","capacity":{"a":1},"allocatable":{"a":1},"used":{"a":1},"scorer":{"a":1}}`: node,
	} {
		got, err := json.Marshal(value)
		if err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

func TestContainersYieldsInitContainersFirst(t *testing.T) {
	pod := types.NewPodInfo()
	for _, name := range []string{"a", "b"} {
		pod.InitContainers["init-"+name] = types.ContainerInfo{Requests: types.ResourceList{"x": 1}}
		pod.RunningContainers[name] = types.ContainerInfo{Requests: types.ResourceList{"x": 2}}
	}
	var names []string
	for name, container := range pod.Containers() {
		if want := int64(1 + len(names)/2); container.Requests["x"] != want {
			t.Errorf("container %q is yielded as number %d", name, len(names))
		}
		names = append(names, name)
	}
	slices.Sort(names[:2])
	slices.Sort(names[2:])
	if want := []string{"init-a", "init-b", "a", "b"}; !slices.Equal(names, want) {
		t.Errorf("it yields %q, want %q", names, want)
	}
	for stop := range 4 {
		yielded := 0
		for range pod.Containers() {
			if yielded++; yielded > stop {
				break
			}
		}
		if yielded != stop+1 {
			t.Errorf("it yields %d containers to a loop that ends after %d", yielded, stop+1)
		}
	}
}

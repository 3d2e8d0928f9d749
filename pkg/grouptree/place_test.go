// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// devices is shorthand for a list of device resources, without resource/group.
func devices(list types.ResourceList) types.ResourceList {
	full := types.ResourceList{}
	for name, quantity := range list {
		full[types.DeviceGroupPrefix+"/"+name] = quantity
	}
	return full
}

// needs returns a container with these device requests.
func needs(list types.ResourceList) types.ContainerInfo {
	return types.ContainerInfo{DevRequests: devices(list)}
}

func TestPlacementStories(t *testing.T) {
	pair := devices(types.ResourceList{"gpu/a/cards": 1, "gpu/a/memory": 80, "gpu/b/cards": 1, "gpu/b/memory": 80})
	type containers = map[string]types.ContainerInfo
	at := func(name string) types.ResourceName { return types.ResourceName(types.DeviceGroupPrefix + "/" + name) }
	for name, test := range map[string]struct {
		scenario
		fits  bool
		where location // nil: any valid one
	}{
		"of equal devices the later name is taken": {
			scenario{
				node: types.NodeInfo{Allocatable: pair},
				pod:  types.PodInfo{RunningContainers: containers{"main": needs(types.ResourceList{"gpu/x/cards": 1})}},
			},
			true, location{"main": {at("gpu/x/cards"): at("gpu/b/cards")}},
		},
		"an exclusive device is allocated once": {
			scenario{node: types.NodeInfo{Allocatable: pair, Used: devices(types.ResourceList{"gpu/b/cards": 1})},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": needs(types.ResourceList{"gpu/x/cards": 1, "gpu/y/cards": 1}),
					},
				}},
			false, nil,
		},
		"two requests share one device": {
			scenario{node: types.NodeInfo{Allocatable: pair},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": needs(types.ResourceList{"gpu/x/memory": 40}),
						"web":  needs(types.ResourceList{"gpu/x/memory": 40}),
					},
				}},
			true,
			location{"main": {at("gpu/x/memory"): at("gpu/b/memory")}, "web": {at("gpu/x/memory"): at("gpu/b/memory")}},
		},
		"the walk would tear the memory apart, the exact search does not": {
			scenario{node: types.NodeInfo{
				Allocatable: devices(types.ResourceList{"gpu/a/memory": 50, "gpu/b/memory": 30}),
			},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": needs(types.ResourceList{"gpu/x/memory": 30, "gpu/y/memory": 25, "gpu/z/memory": 25}),
					},
				}},
			true,
			location{
				"main": {
					at("gpu/x/memory"): at("gpu/b/memory"), at("gpu/y/memory"): at("gpu/a/memory"),
					at("gpu/z/memory"): at("gpu/a/memory"),
				},
			},
		},
		"an init container shares the device of the containers after it": {
			scenario{node: types.NodeInfo{Allocatable: devices(types.ResourceList{"gpu/a/cards": 1})},
				pod: types.PodInfo{
					InitContainers:    containers{"first": needs(types.ResourceList{"gpu/x/cards": 1})},
					RunningContainers: containers{"main": needs(types.ResourceList{"gpu/x/cards": 1})},
				},
				spec: []Container{{"first", Init}, {"main", Regular}}},
			true, nil,
		},
		"an init container cannot share the device of a sidecar before it": {
			scenario{node: types.NodeInfo{Allocatable: devices(types.ResourceList{"gpu/a/cards": 1})},
				pod: types.PodInfo{
					InitContainers:    containers{"first": needs(types.ResourceList{"gpu/x/cards": 1})},
					RunningContainers: containers{"proxy": needs(types.ResourceList{"gpu/x/cards": 1})},
				},
				spec: []Container{{"proxy", Sidecar}, {"first", Init}}},
			false, nil,
		},
		"but it can share that of a sidecar after it": {
			scenario{node: types.NodeInfo{Allocatable: devices(types.ResourceList{"gpu/a/cards": 1})},
				pod: types.PodInfo{
					InitContainers:    containers{"first": needs(types.ResourceList{"gpu/x/cards": 1})},
					RunningContainers: containers{"proxy": needs(types.ResourceList{"gpu/x/cards": 1})},
				},
				spec: []Container{{"first", Init}, {"proxy", Sidecar}}},
			true, nil,
		},
		"a device that others over-use does not block the rest": {
			scenario{node: types.NodeInfo{
				Allocatable: devices(types.ResourceList{"gpu/a/cards": 1, "gpu/failed/cards": 0}),
				Used:        devices(types.ResourceList{"gpu/failed/cards": 1}),
			},
				pod: types.PodInfo{RunningContainers: containers{"main": needs(types.ResourceList{"gpu/x/cards": 1})}}},
			true, location{"main": {at("gpu/x/cards"): at("gpu/a/cards")}},
		},
		"a mask is met when any bit is there": {
			scenario{node: types.NodeInfo{
				Allocatable: devices(types.ResourceList{"gpu/a/enumType": 1, "gpu/b/enumType": 6}),
			},
				pod: types.PodInfo{
					RunningContainers: containers{"main": needs(types.ResourceList{"gpu/x/enumType": 2})},
				}},
			true, location{"main": {at("gpu/x/enumType"): at("gpu/b/enumType")}},
		},
		"a container's own scorer gives it no device that is taken": {
			scenario{node: types.NodeInfo{
				Allocatable: devices(types.ResourceList{"gpu/a/cards": 1}),
				Used:        devices(types.ResourceList{"gpu/a/cards": 1}),
			},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": {
							DevRequests: devices(types.ResourceList{"gpu/x/cards": 1}),
							Scorer:      types.ResourceScorer{at("gpu/x/cards"): 2},
						},
					},
				}},
			false, nil,
		},
		"an allocation that was filled in stays": {
			scenario{node: types.NodeInfo{Allocatable: pair},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": {
							DevRequests:  devices(types.ResourceList{"gpu/x/cards": 1, "gpu/x/memory": 1}),
							AllocateFrom: types.ResourceLocation{at("gpu/x/cards"): at("gpu/a/cards")},
						},
					},
				}},
			true, location{"main": {at("gpu/x/cards"): at("gpu/a/cards"), at("gpu/x/memory"): at("gpu/a/memory")}},
		},
		"other requests yield to it": {
			scenario{node: types.NodeInfo{Allocatable: pair},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": {
							DevRequests:  devices(types.ResourceList{"gpu/x/cards": 1, "gpu/y/cards": 1}),
							AllocateFrom: types.ResourceLocation{at("gpu/y/cards"): at("gpu/b/cards")},
						},
					},
				}},
			true, location{"main": {at("gpu/x/cards"): at("gpu/a/cards"), at("gpu/y/cards"): at("gpu/b/cards")}},
		},
		"one that puts a placeholder on two devices does not fit": {
			scenario{node: types.NodeInfo{Allocatable: pair},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": {
							DevRequests: devices(types.ResourceList{"gpu/x/cards": 1, "gpu/x/memory": 1}),
							AllocateFrom: types.ResourceLocation{
								at("gpu/x/cards"): at("gpu/a/cards"), at("gpu/x/memory"): at("gpu/b/memory"),
							},
						},
					},
				}},
			false, nil,
		},
		"one of another shape does not fit": {
			scenario{node: types.NodeInfo{Allocatable: pair},
				pod: types.PodInfo{
					RunningContainers: containers{
						"main": {
							DevRequests:  devices(types.ResourceList{"gpu/x/cards": 1}),
							AllocateFrom: types.ResourceLocation{at("gpu/x/cards"): at("gpu/a/memory")},
						},
					},
				}},
			false, nil,
		},
		"a level that the node lacks does not fit": {
			scenario{
				node: types.NodeInfo{Allocatable: pair},
				pod: types.PodInfo{
					RunningContainers: containers{"main": needs(types.ResourceList{"pair/0/gpu/x/cards": 1})},
				},
			},
			false, nil,
		},
		"a request of 0 needs the resource, too": {
			scenario{
				node: types.NodeInfo{Allocatable: pair},
				pod:  types.PodInfo{RunningContainers: containers{"main": needs(types.ResourceList{"gpu/x/links": 0})}},
			},
			false, nil,
		},
		"a pod without device requests fits": {
			scenario{
				node: types.NodeInfo{Allocatable: pair}, pod: types.PodInfo{RunningContainers: containers{"main": {}}},
			},
			true, location{"main": {}},
		},
		"a node without devices holds none": {
			scenario{
				pod: types.PodInfo{RunningContainers: containers{"main": needs(types.ResourceList{"gpu/x/cards": 1})}},
			},
			false, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := mustTree(t, &test.node)
			req := mustRequest(t, &test.pod, test.spec)
			before := maps.Clone(test.pod.RunningContainers)
			got := NewPlacer(0).Place(tree, tree.Dense(test.node.Used), req)
			if got.Fits != test.fits {
				t.Fatalf("fits %v, want %v", got.Fits, test.fits)
			}
			if !got.Fits {
				return
			}
			checkValid(t, &test.scenario, tree, req, got)
			if diff := cmp.Diff(test.where, locations(&test.scenario, tree, req, got)); diff != "" &&
				test.where != nil {
				t.Errorf("placed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.pod.RunningContainers); diff != "" {
				t.Errorf("applying a placement changed the pod that was handed in a copy (-before +after):\n%s", diff)
			}
		})
	}
}

func TestSearchStopsAndReportsItsLimit(t *testing.T) {
	node, pod := hopeless()
	tree := mustTree(t, node)
	req := mustRequest(t, pod, nil)
	for _, limit := range []int{1, 1000, DefaultStepLimit} {
		placer := NewPlacer(limit)
		got := placer.Place(tree, tree.Dense(node.Used), req)
		if got.Fits || !got.LimitHit || got.Steps != limit {
			t.Errorf("limit %d: fits %v, limit hit %v after %d steps", limit, got.Fits, got.LimitHit, got.Steps)
		}
		if got := Explain(tree, tree.Dense(node.Used), req, got).String(); !strings.Contains(got,
			"a placement may exist") {
			t.Errorf("limit %d: reason %q", limit, got)
		}
		easy := mustRequest(t, podRequesting(64, []int{4}), nil)
		if limit > 1 && !placer.Place(tree, tree.Dense(nil), easy).Fits {
			t.Errorf("limit %d: the placer fails on the next request", limit)
		}
	}
}

func TestPlacementAtTheLimitIsValid(t *testing.T) {
	s := scenario{node: types.NodeInfo{Allocatable: types.ResourceList{}}}
	requests := types.ResourceList{}
	for i := range 5 { // many placements, all with different scores
		s.node.Allocatable[types.ResourceName("resource/group/gpu/"+string(rune('a'+i))+"/memory")] = int64(100 + 7*i)
		requests[types.ResourceName("gpu/"+string(rune('a'+i))+"/memory")] = int64(60 + 9*((i*3)%5)/2)
	}
	s.pod.RunningContainers = map[string]types.ContainerInfo{"main": needs(requests)}
	tree := mustTree(t, &s.node)
	req := mustRequest(t, &s.pod, nil)
	placer := NewPlacer(0)
	placer.reset(tree, tree.Dense(nil), req)
	whole := placer.searchAll()
	if !whole.Fits || whole.LimitHit {
		t.Fatalf("fits %v, limit hit %v after %d steps", whole.Fits, whole.LimitHit, whole.Steps)
	}
	cut := NewPlacer(whole.Steps / 2)
	cut.reset(tree, tree.Dense(nil), req)
	got := cut.searchAll()
	if !got.Fits || !got.LimitHit || got.Score > whole.Score {
		t.Fatalf("fits %v, limit hit %v, score %v of %v", got.Fits, got.LimitHit, got.Score, whole.Score)
	}
	checkValid(t, &s, tree, req, got)
}

func TestCompileErrorsNameTheCause(t *testing.T) {
	type list = types.ResourceList
	for name, test := range map[string]struct {
		requests types.ResourceList
		scorer   types.ResourceScorer
		want     string
	}{
		"no slash": {
			requests: list{"resource/group": 1}, want: `"resource/group": the name must begin with "resource/group/"`,
		},
		"another prefix":   {requests: list{"resource/groups/gpu/a/cards": 1}, want: "must begin with"},
		"an empty segment": {requests: list{"resource/group/gpu//cards": 1}, want: "empty segment"},
		"nothing after it": {requests: list{"resource/group/": 1}, want: "empty segment"},
		"no resource":      {requests: list{"resource/group/gpu/a": 1}, want: "must alternate level and instance"},
		"too many levels": {
			requests: list{
				types.ResourceName("resource/group" + strings.Repeat("/l/i", resource.MaxLevels+1) + "/r"): 1,
			},
			want: "17 levels",
		},
		"a negative": {requests: list{"resource/group/gpu/a/cards": -1}, want: "negative (-1)"},
		"an unknown scorer": {
			requests: list{"resource/group/gpu/a/cards": 1},
			scorer:   types.ResourceScorer{"resource/group/gpu/a/cards": 3}, want: "scorer 3 is unknown",
		},
		"a scorer that wraps": {
			requests: list{"resource/group/gpu/a/cards": 1},
			scorer:   types.ResourceScorer{"resource/group/gpu/a/cards": 257}, want: "scorer 257 is unknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := CompileDeviceTree(test.requests, test.scorer)
			if err == nil || !strings.Contains(err.Error(), test.want) && !strings.Contains(test.want, "negative") {
				t.Errorf("device tree: error %v, want one with %q", err, test.want)
			}
			pod := &types.PodInfo{
				RunningContainers: map[string]types.ContainerInfo{
					"main": {DevRequests: test.requests, Scorer: test.scorer},
				},
			}
			if _, err := CompileRequest(pod, nil); err == nil || !strings.Contains(err.Error(), test.want) ||
				!strings.Contains(err.Error(), `container "main"`) {
				t.Errorf("request: error %v, want one with the container and %q", err, test.want)
			}
		})
	}
	for name, test := range map[string]struct {
		pod  types.PodInfo
		want string
	}{
		"more than an int64 in all": {
			types.PodInfo{
				InitContainers:    map[string]types.ContainerInfo{"first": needs(list{"gpu/a/memory": 1})},
				RunningContainers: map[string]types.ContainerInfo{"main": needs(list{"gpu/a/memory": math.MaxInt64})},
			}, `container "first": device request "resource/group/gpu/a/memory": the pod's requests add up to more ` +
				`than 9223372036854775807`,
		},
		"too many requests": {
			types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": many(MaxRequests), "web": many(1)}},
			`container "web": the pod makes more than 512 device requests`,
		},
		"an allocation without a request": {
			types.PodInfo{
				RunningContainers: map[string]types.ContainerInfo{
					"main": {
						AllocateFrom: types.ResourceLocation{
							"resource/group/gpu/x/cards": "resource/group/gpu/a/cards",
						},
					},
				},
			},
			`"resource/group/gpu/x/cards" is served by "resource/group/gpu/a/cards" but not requested`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := CompileRequest(&test.pod, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// many returns a container with this number of requests.
func many(requests int) types.ContainerInfo {
	list := types.ResourceList{}
	for i := range requests {
		list[types.ResourceName(fmt.Sprintf("gpu/%d/memory", i))] = 1
	}
	return needs(list)
}

func TestIgnoresForeignNames(t *testing.T) {
	tree := mustTree(t, &types.NodeInfo{Allocatable: types.ResourceList{"nvidia.com/gpu": 8, "gpu/x": -1}})
	req := mustRequest(t, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
		"main": {
			DevRequests:  types.ResourceList{"nvidia.com/gpu": 2},
			AllocateFrom: types.ResourceLocation{"fpga": "fpga/0"},
		},
	}}, nil)
	if tree.Len() != 0 || !req.Empty() {
		t.Errorf("%d resources, empty request %v; want none of either", tree.Len(), req.Empty())
	}
	if got := NewPlacer(0).Place(tree, tree.Dense(nil), req); !got.Fits || got.Score != 0 {
		t.Errorf("placement %+v, want one that fits with score 0", got)
	}
}

// A node of GPUs scores as one of GPUs without cores, until a pod requests cores.
func TestCoresThatNoContainerRequestsDoNotChangeScores(t *testing.T) {
	node := func(cores bool, used types.ResourceList) *types.NodeInfo {
		all := types.ResourceList{"gpu/a/cards": 1, "gpu/b/cards": 1, "gpu/a/memory": 80, "gpu/b/memory": 80}
		if cores {
			all["gpu/a/cores"], all["gpu/b/cores"] = 100, 100
		}
		return &types.NodeInfo{Allocatable: devices(all), Used: devices(used)}
	}
	for what, test := range map[string]struct {
		node     *types.NodeInfo
		requests types.ResourceList
		want     float64
	}{
		"whole GPUs":    {node(true, nil), types.ResourceList{"gpu/x/cards": 1, "gpu/y/cards": 1}, 2.0 / 4},
		"a share":       {node(true, nil), types.ResourceList{"gpu/x/memory": 40}, 0.5 / 4},
		"without cores": {node(false, nil), types.ResourceList{"gpu/x/memory": 40}, 0.5 / 4},
		"cores of others": {
			node(true, types.ResourceList{"gpu/a/cores": 50}), types.ResourceList{"gpu/x/memory": 40}, 0.5 / 4,
		},
		"cores that it requests": {
			node(true, types.ResourceList{"gpu/a/cores": 20}),
			types.ResourceList{"gpu/x/memory": 40, "gpu/x/cores": 30}, (0.5 + 0.5) / 6,
		},
	} {
		tree := mustTree(t, test.node)
		pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": needs(test.requests)}}
		got := NewPlacer(DefaultStepLimit).Place(tree, tree.Dense(test.node.Used), mustRequest(t, pod, nil))
		if !got.Fits || math.Abs(got.Score-test.want) > 1e-12 {
			t.Errorf("%s: the score is %v, want %v", what, got.Score, test.want)
		}
	}
}

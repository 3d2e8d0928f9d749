// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// nic is a second extended resource.
const nic types.ResourceName = "example.com/nic"

// with returns the inventory with n devices of an extended resource added, the first unhealthy of
// which are unhealthy.
func with(info *types.NodeInfo, extended types.ResourceName, n, unhealthy int) *types.NodeInfo {
	for i := range n {
		name := types.ResourceName(fmt.Sprintf("resource/group/%s/%d/cards", extended[len("example.com/"):], i))
		info.Capacity[name], info.Allocatable[name] = 1, 1
		if i < unhealthy {
			info.Allocatable[name] = 0
		}
	}
	for list, count := range map[*types.ResourceList]int{&info.Capacity: n, &info.KubeCap: n,
		&info.Allocatable: n - unhealthy, &info.KubeAlloc: n - unhealthy} {
		(*list)[extended] = int64(count)
	}
	return info
}

// view is what a node shows: of each extended resource how many of its devices may be given out,
// and the count.
type view struct{ Announced, Counted map[types.ResourceName]int64 }

func viewOf(t *testing.T, node *corev1.Node) view {
	t.Helper()
	v := view{map[types.ResourceName]int64{}, map[types.ResourceName]int64{}}
	for _, extended := range []types.ResourceName{gpu, nic} {
		if count, there := node.Status.Allocatable[corev1.ResourceName(extended)]; there {
			v.Counted[extended] = count.Value()
		}
	}
	annotation, annotated := node.Annotations[deviceinfo.Annotation]
	if !annotated {
		return v
	}
	info, err := deviceinfo.DecodeNode(annotation)
	if err != nil {
		t.Fatal(err)
	}
	for name := range info.Capacity {
		for extended, kind := range map[types.ResourceName]string{gpu: "gpu", nic: "nic"} {
			if name == extended {
				v.Announced[extended] += 0
			}
			var number int
			if n, _ := fmt.Sscanf(string(name), "resource/group/"+kind+"/%d/cards", &number); n == 1 {
				v.Announced[extended] += info.Allocatable[name]
			}
		}
	}
	return v
}

func shows(announcedGPUs, countedGPUs, announcedNICs, countedNICs int64) view {
	counts := func(gpus, nics int64) map[types.ResourceName]int64 {
		m := map[types.ResourceName]int64{gpu: gpus, nic: nics}
		maps.DeleteFunc(m, func(_ types.ResourceName, n int64) bool { return n < 0 })
		return m
	}
	return view{counts(announcedGPUs, announcedNICs), counts(countedGPUs, countedNICs)}
}

// none stands for a resource that the node does not have.
const none = -1

func TestAddedDevicesAreCountedFirstAndRemovedOnesAnnouncedFirst(t *testing.T) {
	empty := func() *types.NodeInfo { return types.NewNodeInfoWithName("node-1") }
	both := func(gpus, nics int) *types.NodeInfo { return with(with(empty(), gpu, gpus, 0), nic, nics, 0) }
	for name, test := range map[string]struct {
		before, after *types.NodeInfo
		first, second view
	}{
		"more":                           {both(1, 1), both(3, 1), shows(1, 3, 1, 1), shows(3, 3, 1, 1)},
		"less":                           {both(3, 1), both(1, 1), shows(1, 3, 1, 1), shows(1, 1, 1, 1)},
		"more of one, less of another":   {both(1, 4), both(3, 2), shows(1, 3, 2, 4), shows(3, 3, 2, 2)},
		"the first devices":              {empty(), both(2, 1), shows(0, 2, 0, 1), shows(2, 2, 1, 1)},
		"no devices any more":            {both(2, 1), empty(), shows(0, 2, 0, 1), shows(none, none, none, none)},
		"a resource that is there again": {with(empty(), gpu, 2, 0), both(2, 1), shows(2, 2, 0, 1), shows(2, 2, 1, 1)},
		"a resource that is gone": {
			both(2, 1), with(empty(), gpu, 2, 0), shows(2, 2, 0, 1), shows(2, 2, none, none),
		},
		"a device that fails": {both(3, 1), with(both(0, 1), gpu, 3, 1), shows(2, 3, 1, 1), shows(2, 2, 1, 1)},
		"one fails, and another recovers": {
			with(both(0, 1), gpu, 3, 1), swapped(with(both(0, 1), gpu, 3, 1), "resource/group/gpu/0/cards",
				"resource/group/gpu/1/cards"), shows(1, 2, 1, 1), shows(2, 2, 1, 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(nodeWith("", nil))
				patches := 0
				s := newSource(test.before)
				followed(t, client, s, Options{Metrics: patchedFunc(func(error) { patches++ })},
					func(a *Advertiser, nodes chan<- *corev1.Node) {
						nodes <- nodeWith("", nil)
						pass(2 * Gap)
						patches = 0
						s.set(test.after)
						pass(Gap - time.Nanosecond)
						if diff := cmp.Diff(test.first, viewOf(t, get(t, client))); diff != "" {
							t.Errorf("before the second patch (-want +got):\n%s", diff)
						}
						pass(time.Nanosecond)
						if diff := cmp.Diff(test.second, viewOf(t, get(t, client))); diff != "" {
							t.Errorf("after the second patch (-want +got):\n%s", diff)
						}
						pass(time.Hour)
						if patches != 2 {
							t.Errorf("%d patches, want 2", patches)
						}
						if a.Check() != nil {
							t.Errorf("health: %v", a.Check())
						}
					})
			})
		})
	}
}

// swapped exchanges what is allocatable of two resources.
func swapped(info *types.NodeInfo, a, b types.ResourceName) *types.NodeInfo {
	info.Allocatable[a], info.Allocatable[b] = info.Allocatable[b], info.Allocatable[a]
	return info
}

func TestOnlyUnchangedBitsOfMasksAreAnnounced(t *testing.T) {
	for name, mask := range map[string]types.ResourceName{"by name": "resource/group/gpu/0/enumType",
		"by scorer": "resource/group/gpu/0/kind"} {
		info := func(bits int64) *types.NodeInfo {
			info := gpus(1)
			info.Allocatable[mask] = bits
			if name == "by scorer" {
				info.Scorer[mask] = enumScorer
			}
			return info
		}
		w := func(bits int64) wanted { return wanted{info: info(bits)} }
		start := time.Now()
		s := newSteps(step{allocatable: info(0b0110).Allocatable})
		if got := s.next(start, w(0b1010)).info.Allocatable[mask]; got != 0b0010 {
			t.Errorf("%s: at first %04b", name, got)
		}
		due := s.done(start, w(0b1010))
		if got := s.next(due, w(0b1010)).info.Allocatable[mask]; got != 0b1010 {
			t.Errorf("%s: at last %04b", name, got)
		}
	}
}

func TestAChangeThatIsTakenBackInTheMeantimeLeavesTheCountsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		s := newSource(gpus(3))
		followed(t, client, s, Options{}, func(_ *Advertiser, nodes chan<- *corev1.Node) {
			nodes <- nodeWith("", nil)
			pass(2 * Gap)
			s.set(gpus(2))
			pass(Gap / 2)
			s.set(gpus(3))
			for range 10 {
				pass(Gap / 5)
				if got := viewOf(t, get(t, client)).Counted[gpu]; got != 3 {
					t.Errorf("the count is %d", got)
				}
			}
			if diff := cmp.Diff(view{map[types.ResourceName]int64{gpu: 3}, map[types.ResourceName]int64{gpu: 3}},
				viewOf(t, get(t, client))); diff != "" {
				t.Errorf("in the end (-want +got):\n%s", diff)
			}
		})
	})
}

func TestADeviceThatComesAndGoesKeepsNoOtherFromBeingPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		inventory := func(gpus, nics int) *types.NodeInfo {
			return with(with(types.NewNodeInfoWithName("node-1"), gpu, gpus, 0), nic, nics, 0)
		}
		s := newSource(inventory(1, 1))
		followed(t, client, s, Options{}, func(_ *Advertiser, nodes chan<- *corev1.Node) {
			nodes <- nodeWith("", nil)
			pass(2 * Gap)
			for i := range 10 {
				s.set(inventory(2, 1+i%2))
				pass(Gap / 5)
			}
			if diff := cmp.Diff(shows(2, 2, 1, 2), viewOf(t, get(t, client))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	})
}

// TestTheKubeletIsNeverQueriedForMoreThanItKnows lets inventories change, the API server fail and
// kubecri restart at random, and compares each state of the node with all others of about the
// same time: the scheduler may act on one of them and the kubelet on another.
func TestTheKubeletIsNeverQueriedForMoreThanItKnows(t *testing.T) {
	type state struct {
		view
		from, until time.Time
	}
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			client := fake.NewClientset(nodeWith("", nil))
			var failing atomic.Bool
			client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, apiruntime.Object, error) {
				return failing.Load(), nil, errors.New("API server away")
			})
			var states []state
			inspect := func() {
				if n := len(states); n > 0 {
					states[n-1].until = time.Now()
				}
				states = append(states, state{view: viewOf(t, get(t, client)), from: time.Now()})
			}
			inventory := func() *types.NodeInfo {
				info := types.NewNodeInfoWithName("node-1")
				for _, extended := range []types.ResourceName{gpu, nic} {
					if n := random.IntN(5); n > 0 {
						with(info, extended, n, random.IntN(n+1))
					}
				}
				return info
			}
			s := newSource(inventory())
			var last *types.NodeInfo
			for range 5 { // lives of kubecri
				followed(t, client, s,
					Options{Retry: 100 * time.Millisecond, Metrics: patchedFunc(func(error) { inspect() })},
					func(_ *Advertiser, nodes chan<- *corev1.Node) {
						nodes <- get(t, client)
						for range 20 {
							pass(time.Duration(random.Int64N(int64(Gap))))
							switch random.IntN(4) {
							case 0:
								failing.Store(!failing.Load())
							default:
								last = inventory()
								s.set(last)
							}
						}
						synctest.Wait()
					})
			}
			failing.Store(false)
			followed(t, client, s, Options{Metrics: patchedFunc(func(error) { inspect() })},
				func(a *Advertiser, nodes chan<- *corev1.Node) {
					nodes <- get(t, client)
					pass(10 * time.Second)
					if a.Check() != nil {
						t.Errorf("seed %d: %v", seed, a.Check())
					}
					end := wanted{info: last}
					if value, err := annotation(nodeWith("", nil), end.info); err != nil ||
						get(t, client).Annotations[deviceinfo.Annotation] != value {
						t.Errorf("seed %d: in the end the annotation is %s, want %s, %v", seed,
							get(t, client).Annotations[deviceinfo.Annotation], value, err)
					}
					for extended, count := range last.KubeAlloc {
						if got := viewOf(t, get(t, client)).Counted[extended]; got != count {
							t.Errorf("seed %d: in the end there are %d %s, want %d", seed, got, extended, count)
						}
					}
				})
			states[len(states)-1].until = time.Now()
			for _, scheduler := range states {
				for _, kubelet := range states {
					if scheduler.from.Sub(kubelet.until) >= Gap || kubelet.from.Sub(scheduler.until) >= Gap {
						continue
					}
					for extended, announced := range scheduler.Announced {
						if counted, there := kubelet.Counted[extended]; there && announced > counted {
							t.Errorf("seed %d: %d %s announced at %v, %d counted at %v", seed, announced, extended,
								scheduler.from, counted, kubelet.from)
						}
					}
				}
			}
		})
	}
}

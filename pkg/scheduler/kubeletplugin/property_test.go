// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	names "github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// randomState is a random state of one node.
type randomState struct {
	*fixture
	free    map[string]map[types.ResourceName]int // healthy devices that no pod holds, by NUMA nodes
	healthy map[string]map[types.ResourceName]int // all healthy devices
}

// newRandomNode returns a node with up to most devices of a GPU and NIC in each place, of which
// some are taken and some unhealthy.
func newRandomNode(t *testing.T, random *rand.Rand, most int, places ...string) *randomState {
	t.Helper()
	var devices, taken []string
	w := &randomState{free: map[string]map[types.ResourceName]int{}, healthy: map[string]map[types.ResourceName]int{}}
	for _, place := range places {
		w.free[place], w.healthy[place] = map[types.ResourceName]int{}, map[types.ResourceName]int{}
		for kind, resource := range map[string]types.ResourceName{"gpu": gpu, "nic": nic} {
			for i := range random.IntN(most + 1) {
				device := fmt.Sprintf("%s %s %s%d", kind, place, place, i)
				switch random.IntN(4) {
				case 0:
					taken = append(taken, device)
					devices = append(devices, device)
					w.healthy[place][resource]++
				case 1:
					devices = append(devices, device+"!")
				default:
					devices = append(devices, device)
					w.free[place][resource]++
					w.healthy[place][resource]++
				}
			}
		}
	}
	w.fixture = newFixture(t, devices...)
	byID := list{}
	for _, device := range taken {
		fields := strings.Fields(device)
		byID[deviceName(t, fields[0]+" ="+fields[1]+" ="+fields[2])] = 1
	}
	if len(byID) > 0 {
		w.run(requestOf("before", spec{requests: byID}))
	}
	return w
}

// total returns how many devices of a resource are free.
func (w *randomState) total(resource types.ResourceName) int {
	n := 0
	for _, free := range w.free {
		n += free[resource]
	}
	return n
}

// group is the request of one placeholder.
type group struct{ gpus, nics int }

// possible reports whether each group fits into one place; it tries all ways.
func (w *randomState) possible(groups []group) bool {
	if len(groups) == 0 {
		return true
	}
	g := groups[0]
	for place, free := range w.free {
		if place == names.Unknown && g.gpus+g.nics > 1 || free[gpu] < g.gpus || free[nic] < g.nics {
			continue
		}
		free[gpu], free[nic] = free[gpu]-g.gpus, free[nic]-g.nics
		possible := w.possible(groups[1:])
		free[gpu], free[nic] = free[gpu]+g.gpus, free[nic]+g.nics
		if possible {
			return true
		}
	}
	return false
}

func TestServesGPUAndNICFromOneNUMANodeOrRefusesWithAReason(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 3))
	fitted, refused := 0, map[string]int{}
	for range 300 {
		w := newRandomNode(t, random, 3, "0", "1", "2", "0-1", names.Unknown)
		groups := make([]group, 1+random.IntN(3))
		requests, limits := list{}, list{}
		for i := range groups {
			g := group{1 + random.IntN(2), random.IntN(3)}
			groups[i] = g
			placeholder := string(rune('A' + i))
			for resource, n := range map[types.ResourceName]int{"nvidia.com:gpu": g.gpus,
				"vendor.example:nic": g.nics} {
				if n > 0 {
					requests["numa/"+types.ResourceName(placeholder)+"/"+resource] = int64(n)
				}
			}
			limits[gpu] += int64(g.gpus)
			limits[nic] += int64(g.nics)
		}
		if limits[nic] == 0 {
			delete(limits, nic)
		}
		made := requestOf("p", spec{limits: limits, requests: requests})
		refusal := w.refusal(made)
		if possible := w.possible(groups); possible != (refusal == "") {
			t.Fatalf("%v in %v: possible: %v; nodes %s", groups, w.free, possible, refusal)
		}
		if refusal != "" {
			if !strings.Contains(refusal, string(gpu)) && !strings.Contains(refusal, string(nic)) {
				t.Errorf("%v in %v: the reason names nothing that is missing: %s", groups, w.free, refusal)
			}
			refused[refusal]++
			empty := &randomState{free: w.healthy}
			if unresolvable := w.fit(made).Unresolvable; unresolvable == empty.possible(groups) {
				t.Errorf("%v in %v, and %v if no pod held a device: evictions help: %v", groups, w.free, w.healthy,
					!unresolvable)
			}
			continue
		}
		fitted++
		w.checkTogether(made.Pod.Name, w.run(made)["main"], groups)
	}
	if fitted < 60 || len(refused) < 10 {
		t.Errorf("%d pods fitted, and the others were refused for %v: too few kinds of states were tried", fitted,
			refused)
	}
}

// checkTogether checks that a pod got as many devices as the groups request, that all of them were
// free, and that they form the groups, each in one place.
func (w *randomState) checkTogether(name, devices string, groups []group) {
	w.Helper()
	got := &randomState{free: map[string]map[types.ResourceName]int{}}
	gpus, nics := 0, 0
	for _, g := range groups {
		gpus, nics = gpus+g.gpus, nics+g.nics
	}
	seen := map[string]bool{}
	for _, device := range strings.Split(devices, ", ") {
		fields := strings.Fields(device)
		resource := map[string]types.ResourceName{"gpu": gpu, "nic": nic}[fields[0]]
		if got.free[fields[1]] == nil {
			got.free[fields[1]] = map[types.ResourceName]int{}
		}
		got.free[fields[1]][resource]++
		if seen[device] || got.free[fields[1]][resource] > w.free[fields[1]][resource] {
			w.Errorf("pod %s got %s, which was not free", name, device)
		}
		seen[device] = true
	}
	if got.total(gpu) != gpus || got.total(nic) != nics || !got.possible(groups) {
		w.Errorf("pod %s requests %v and got %s", name, groups, devices)
	}
}

func TestServesCountsFromFewestNUMANodesWithFewestLeftOver(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 4))
	places := []string{"0", "1", "2", "3", "4", names.Unknown}
	for range 300 {
		w := newRandomNode(t, random, 5, places...)
		count := group{min(w.total(gpu), 1+random.IntN(6)), min(w.total(nic), random.IntN(4))}
		limits := list{}
		for resource, n := range map[types.ResourceName]int{gpu: count.gpus, nic: count.nics} {
			if n > 0 {
				limits[resource] = int64(n)
			}
		}
		if len(limits) == 0 {
			continue
		}
		var sources []string
		for _, device := range strings.Split(w.run(requestOf("p", spec{limits: limits}))["main"], ", ") {
			sources = append(sources, strings.Fields(device)[1])
		}
		used := 0
		for i, place := range places {
			for _, source := range sources {
				if source == place {
					used |= 1 << i
				}
			}
		}
		numbers, left := bits.OnesCount(uint(used)), w.leftOver(places, used, count)
		for set := range 1 << len(places) {
			n, l := bits.OnesCount(uint(set)), w.leftOver(places, set, count)
			if l >= 0 && (n < numbers || n == numbers && l < left) {
				t.Fatalf("%v in %v came from %v with %d left over; %06b of %v has %d left over", count, w.free, sources,
					left, set, places, l)
			}
		}
	}
}

// leftOver returns how many devices of the counted resources remain in a set of places, or -1 when
// they have too few.
func (w *randomState) leftOver(places []string, set int, count group) int {
	gpus, nics := -count.gpus, -count.nics
	for i, place := range places {
		if set&(1<<i) != 0 {
			gpus, nics = gpus+w.free[place][gpu], nics+w.free[place][nic]
		}
	}
	if gpus < 0 || nics < 0 {
		return -1
	}
	if count.gpus == 0 {
		gpus = 0
	}
	if count.nics == 0 {
		nics = 0
	}
	return gpus + nics
}

func TestPodWithInitContainersHoldsWhatKubernetesCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	fitted, refused := 0, 0
	for range 300 {
		w := newRandomNode(t, random, 4, "0", "1")
		var specs []spec
		for i := range 1 + random.IntN(5) {
			kind := []grouptree.Kind{grouptree.Init, grouptree.Sidecar, grouptree.Regular}[random.IntN(3)]
			limits := list{gpu: 1 + random.Int64N(3)}
			if random.IntN(2) == 0 {
				limits[nic] = 1 + random.Int64N(2)
			}
			specs = append(specs, spec{name: fmt.Sprint("c", i), kind: kind, limits: limits})
		}
		counted := counted(specs)
		fits := counted[gpu] <= int64(w.total(gpu)) && counted[nic] <= int64(w.total(nic))
		made := requestOf("p", specs...)
		if refusal := w.refusal(made); fits != (refusal == "") {
			t.Fatalf("%v counts as %v in %v: nodes %s", specs, counted, w.free, refusal)
		} else if !fits {
			refused++
			continue
		}
		fitted++
		w.run(made)
		held := map[types.ResourceName]int64{gpu: 0, nic: 0}
		for _, device := range w.state().Resources() {
			resource, _, _, _ := names.ParseRequest(device.Name)
			held[resource] += w.holders[len(w.holders)-1].Holds(device.Name)
		}
		if held[gpu] != counted[gpu] || held[nic] != counted[nic] {
			t.Errorf("%v holds %v, and counts as %v", specs, held, counted)
		}
	}
	if fitted < 50 || refused < 50 {
		t.Errorf("%d pods fitted and %d did not: too few kinds of states were tried", fitted, refused)
	}
}

// counted returns what Kubernetes counts for a pod: the most that is in use at any time.
func counted(specs []spec) list {
	running, sidecars, most := list{}, list{}, list{}
	for _, a := range specs {
		for resource, n := range a.limits {
			switch a.kind {
			case grouptree.Init:
				most[resource] = max(most[resource], n+sidecars[resource])
			case grouptree.Sidecar:
				sidecars[resource] += n
				fallthrough
			default:
				running[resource] += n
			}
		}
	}
	for resource, n := range running {
		most[resource] = max(most[resource], n)
	}
	return most
}

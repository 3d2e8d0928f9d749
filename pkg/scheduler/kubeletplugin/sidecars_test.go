// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	names "github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// wanted is one device that a container of a pod requests.
type wanted struct {
	container int
	resource  string // as newFixture has it
	together  bool   // on one NUMA node with the container's others of which this is true
	place, id string // if the request names them
}

// puzzle is a pod and the devices of a node, for a search that tries everything.
type puzzle struct {
	kinds    []grouptree.Kind // of the containers, in the order of the pod's spec
	wanted   []wanted
	devices  []string       // as newFixture has them
	bounds   map[string]int // how many devices of each resource the pod may hold; nil for no bounds
	assigned []int          // for each wanted device that is assigned, its number
	places   map[int]int    // for each container with devices that belong together, one of their place
}

// overlap reports whether two containers hold their devices at the same time.
func (p *puzzle) overlap(a, b int) bool {
	a, b = min(a, b), max(a, b)
	if p.kinds[b] == grouptree.Init {
		return a == b || p.kinds[a] == grouptree.Sidecar
	}
	return p.kinds[a] != grouptree.Init
}

// fits reports whether a device can serve the next wanted one, and whether it is the first of those
// that must be together.
func (p *puzzle) fits(device int) (fits, first bool) {
	w := p.wanted[len(p.assigned)]
	if !strings.HasPrefix(p.devices[device], w.resource) || p.exceeds(device) {
		return false, false
	}
	for i, assigned := range p.assigned {
		if assigned == device && p.overlap(p.wanted[i].container, w.container) {
			return false, false
		}
	}
	fields := strings.Fields(p.devices[device])
	if w.id != "" && w.id != fields[2] || w.place != "" && w.place != fields[1] {
		return false, false
	}
	if !w.together {
		return true, false
	}
	others := 0
	for _, other := range p.wanted {
		if other.together && other.container == w.container {
			others++
		}
	}
	if others > 1 && w.place == "" && fields[1] == names.Unknown {
		return false, false
	}
	located, placed := p.places[w.container]
	return !placed || strings.Fields(p.devices[located])[1] == fields[1], !placed
}

// exceeds reports whether the pod would hold more devices with this one than it may.
func (p *puzzle) exceeds(device int) bool {
	if p.bounds == nil || slices.Contains(p.assigned, device) {
		return false
	}
	resource, _, _ := strings.Cut(p.devices[device], " ")
	held := map[int]bool{}
	for _, assigned := range p.assigned {
		held[assigned] = held[assigned] || strings.HasPrefix(p.devices[assigned], resource)
	}
	count := 1
	for _, same := range held {
		if same {
			count++
		}
	}
	return count > p.bounds[resource]
}

// solvable reports whether the wanted devices that have none can have one.
func (p *puzzle) solvable() bool {
	if len(p.assigned) == len(p.wanted) {
		return true
	}
	for device := range p.devices {
		fits, first := p.fits(device)
		if !fits {
			continue
		}
		w := p.wanted[len(p.assigned)]
		if first {
			p.places[w.container] = device
		}
		p.assigned = append(p.assigned, device)
		solvable := p.solvable()
		p.assigned = p.assigned[:len(p.assigned)-1]
		if first {
			delete(p.places, w.container)
		}
		if solvable {
			return true
		}
	}
	return false
}

// newPuzzle returns a random puzzle, and the pod that it is about. There are just enough devices,
// or one or two more.
func newPuzzle(random *rand.Rand) (*puzzle, []spec) {
	p := &puzzle{places: map[int]int{}}
	var specs []spec
	for i := range 3 + random.IntN(4) {
		kind := []grouptree.Kind{grouptree.Init, grouptree.Sidecar}[random.IntN(2)]
		if i > 1 && random.IntN(3) == 0 || len(p.kinds) > 0 && p.kinds[i-1] == grouptree.Regular {
			kind = grouptree.Regular
		}
		p.kinds = append(p.kinds, kind)
		specs = append(specs, spec{name: fmt.Sprint("c", random.IntN(100), "-", i), kind: kind,
			limits: list{gpu: 1 + random.Int64N(7)/6}, requests: list{}})
	}
	for i := range counted(specs)[gpu] + random.Int64N(3) {
		p.devices = append(p.devices, fmt.Sprintf("gpu %s g%d", []string{"0", "0", "1", "1",
			names.Unknown}[random.IntN(5)], i))
	}
	for i, a := range specs {
		count := a.limits[gpu]
		w := wanted{container: i, resource: "gpu", together: random.IntN(4) == 0 || a.kind == grouptree.Init}
		prefix, device := types.ResourceName("numa/A/nvidia.com:gpu"), p.devices[random.IntN(len(p.devices))]
		switch {
		case !w.together:
		case random.IntN(8) == 0:
			w.place = strings.Fields(device)[1]
			prefix = types.ResourceName("numa/=" + w.place + "/nvidia.com:gpu")
			fallthrough
		case count > 1 || random.IntN(8) == 0:
			a.requests[prefix] = count
		default:
			w.id = strings.Fields(device)[2]
			a.requests[prefix+types.ResourceName("/="+w.id+"/device")] = 1
		}
		for range count {
			p.wanted = append(p.wanted, w)
		}
	}
	slices.SortStableFunc(p.wanted, func(a, b wanted) int {
		return strings.Compare(b.id,
			a.id)
	}) // those with the fewest ways first
	return p, specs
}

func TestFindsEveryAllocationOfContainersThatRunAtDifferentTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	fitted, refused := 0, 0
	for range 1000 {
		p, specs := newPuzzle(random)
		r := newFixture(t, p.devices...)
		refusal := r.refusal(requestOf("p", specs...))
		if solvable := p.solvable(); solvable != (refusal == "") {
			t.Fatalf("%+v on %q: possible: %v; nodes %s", specs, p.devices, solvable, refusal)
		}
		if refusal == "" {
			fitted++
		} else {
			refused++
		}
	}
	if fitted < 500 || refused < 50 {
		t.Errorf("%d pods fitted and %d did not: too few kinds of pods were tried", fitted, refused)
	}
}

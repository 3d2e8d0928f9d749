// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The full run is go test ./pkg/grouptree -run Oracle -oracle.cases 100000.
var (
	oracleCases = flag.Int("oracle.cases", 1000, "number of random cases that the oracle checks")
	oracleSeed  = flag.Uint64("oracle.seed", 0, "seed of the first of them; each has its own")
)

// mostAssignments bounds the assignments that the oracle tries for one case.
const mostAssignments = 1000

// slot is one placeholder of one container: the choice that an assignment makes.
type slot struct {
	container string
	path      string // resource/group/<level>/<placeholder>/…, up to the placeholder
	parent    int    // the slot of the placeholder above, or -1
}

// oracle tries all assignments of placeholders to instances, without any optimization.
type oracle struct {
	s        *scenario
	slots    []slot
	requests []slotRequest
	children map[string][]string // path of an instance with a level → paths of the instances there, later names first
	choice   []string
}

// slotRequest is one request of a placeholder.
type slotRequest struct {
	container string
	name      types.ResourceName
	slot      int    // -1 for a request of the node itself
	resource  string // with the slash before it
}

func newOracle(s *scenario) *oracle {
	o := &oracle{s: s, children: map[string][]string{}}
	for name := range s.node.Allocatable {
		segments := strings.Split(string(name), "/")
		for i := 2; i+1 < len(segments); i += 2 {
			prefix, instance := strings.Join(segments[:i+1], "/"), strings.Join(segments[:i+2], "/")
			if !slices.Contains(o.children[prefix], instance) {
				o.children[prefix] = append(o.children[prefix], instance)
			}
		}
	}
	for _, instances := range o.children {
		slices.Sort(instances)
		slices.Reverse(instances)
	}
	names, infos := s.containers()
	for _, name := range names {
		first := len(o.slots)
		for _, request := range canonical(infos[name].DevRequests) {
			segments := strings.Split(string(request), "/")
			parent := -1
			for i := 2; i+1 < len(segments); i += 2 {
				path := strings.Join(segments[:i+2], "/")
				k := slices.IndexFunc(o.slots[first:], func(s slot) bool { return s.path == path })
				if k < 0 {
					k = len(o.slots) - first
					o.slots = append(o.slots, slot{container: name, path: path, parent: parent})
				}
				parent = first + k
			}
			o.requests = append(o.requests, slotRequest{name, request, parent, "/" + segments[len(segments)-1]})
		}
	}
	o.choice = make([]string, len(o.slots))
	return o
}

// shared reports whether slot k must have an instance of its own, and an earlier slot has it.
func (o *oracle) shared(k int) bool {
	ofOwn := func(s slot) bool { return strings.HasPrefix(s.path[strings.LastIndexByte(s.path, '/')+1:], "!") }
	for j := range k {
		if o.slots[j].container == o.slots[k].container && o.choice[j] == o.choice[k] && ofOwn(o.slots[j]) &&
			ofOwn(o.slots[k]) {
			return true
		}
	}
	return false
}

// instances returns the possible instances of slot k after the earlier choices.
func (o *oracle) instances(k int) []string {
	prefix := types.DeviceGroupPrefix
	if parent := o.slots[k].parent; parent >= 0 {
		prefix = o.choice[parent]
	}
	segments := strings.Split(o.slots[k].path, "/")
	return o.children[prefix+"/"+segments[len(segments)-2]]
}

// each calls visit with every complete assignment, in the exact search's order of preference, until
// visit returns false or there are too many.
func (o *oracle) each(visit func() bool) (complete bool) {
	count := 0
	var next func(k int) bool
	next = func(k int) bool {
		if k == len(o.slots) {
			count++
			return count <= mostAssignments && visit()
		}
		for _, instance := range o.instances(k) {
			o.choice[k] = instance
			if o.shared(k) {
				continue
			}
			if !next(k + 1) {
				return false
			}
		}
		return true
	}
	return next(0)
}

// where returns the current assignment as locations.
func (o *oracle) where() location {
	where := location{}
	for name := range o.s.infos {
		where[name] = types.ResourceLocation{}
	}
	for _, r := range o.requests {
		prefix := types.DeviceGroupPrefix
		if r.slot >= 0 {
			prefix = o.choice[r.slot]
		}
		where[r.container][r.name] = types.ResourceName(prefix + r.resource)
	}
	return where
}

// best returns the highest score of all valid placements, and of those that score the same the
// first by name.
func (o *oracle) best() (score float64, where location, complete bool) {
	score = math.Inf(-1)
	complete = o.each(func() bool {
		place := o.where()
		if o.s.shortage(place) == "" {
			if got := o.s.score(place); got > score+1e-9 {
				score, where = got, place
			}
		}
		return true
	})
	return score, where, complete
}

// randomScenario returns a small node, partly used, and a pod.
func randomScenario(r *rand.Rand) *scenario {
	levels := [][]string{{"gpu"}, {"grp0", "gpu"}, {"grp1", "grp0", "gpu"}, {"grp2", "grp1", "grp0", "gpu"}}[r.IntN(4)]
	s := &scenario{
		node: types.NodeInfo{
			Allocatable: types.ResourceList{},
			Used:        types.ResourceList{},
			Scorer:      types.ResourceScorer{},
		},
	}
	instances := []string{"0", "1", "10", "9-a", "9", "b"}
	devices, exclusive, masks, cores := 1+r.IntN(6), r.IntN(2) == 0, r.IntN(3) == 0, r.IntN(3) == 0
	sizes := []int64{40, 80, 7}[:1+r.IntN(3)]
	for d := range devices {
		path := types.DeviceGroupPrefix
		for i, level := range levels {
			instance := instances[r.IntN(2)]
			if i == len(levels)-1 {
				instance = fmt.Sprint("dev", d)
			}
			path += "/" + level + "/" + instance
		}
		add := func(resource string, allocatable int64) {
			name := types.ResourceName(path + "/" + resource)
			s.node.Allocatable[name] = allocatable
			if r.IntN(4) == 0 {
				s.node.Used[name] = []int64{allocatable, allocatable / 2, allocatable + 1, 1}[r.IntN(4)]
			}
			if r.IntN(25) == 0 {
				s.node.Scorer[name] = int32(r.IntN(3))
			}
		}
		if r.IntN(12) > 0 {
			add("cards", 1)
		}
		add("memory", sizes[r.IntN(len(sizes))])
		if masks {
			add("enumType", 1<<r.IntN(3)|int64(r.IntN(2)))
		}
		if cores && r.IntN(6) > 0 {
			add("cores", 100)
		}
		if r.IntN(20) == 0 {
			s.node.Allocatable["resource/group/power"] = 100
		}
	}
	different := r.IntN(3) == 0
	container := func() types.ContainerInfo {
		info := types.ContainerInfo{DevRequests: types.ResourceList{}, Scorer: types.ResourceScorer{}}
		for d := range r.IntN(4) {
			path := types.DeviceGroupPrefix
			for i, level := range levels {
				placeholder := instances[r.IntN(2)]
				if i == len(levels)-1 {
					placeholder = string(rune('a' + d))
				}
				if different && r.IntN(2) == 0 {
					placeholder = "!" + placeholder
				}
				path += "/" + level + "/" + placeholder
			}
			add := func(resource string, quantity int64) {
				name := types.ResourceName(path + "/" + resource)
				info.DevRequests[name] = quantity
				if r.IntN(40) == 0 {
					info.Scorer[name] = int32(r.IntN(3))
				}
			}
			if exclusive || r.IntN(5) == 0 {
				add("cards", 1)
			}
			if !exclusive || r.IntN(2) == 0 {
				add("memory", []int64{40, 20, 7, 3, 0}[r.IntN(5)])
			}
			if masks && r.IntN(2) == 0 {
				add("enumType", int64(r.IntN(4)))
			}
			if cores && r.IntN(4) == 0 {
				add("cores", []int64{50, 30, 0}[r.IntN(3)])
			}
		}
		if r.IntN(20) == 0 {
			info.DevRequests["resource/group/power"] = 60
		}
		return info
	}
	s.pod.RunningContainers, s.pod.InitContainers = map[string]types.ContainerInfo{}, map[string]types.ContainerInfo{}
	for _, member := range [][]Container{
		{{"main", Regular}},
		{{"main", Regular}, {"web", Regular}},
		{{"first", Init}, {"main", Regular}},
		{{"proxy", Sidecar}, {"first", Init}, {"main", Regular}},
		{{"first", Init}, {"proxy", Sidecar}, {"second", Init}, {"main", Regular}},
	}[r.IntN(5)] {
		s.spec = append(s.spec, member)
		if member.Kind == Init {
			s.pod.InitContainers[member.Name] = container()
		} else {
			s.pod.RunningContainers[member.Name] = container()
		}
	}
	return s
}

// The exact search finds a placement if there is one: the one with the highest score, and of those
// the first by name. The walk finds valid placements, too.
func TestOracleAgreesWithTheExactSearch(t *testing.T) {
	placer := NewPlacer(0)
	checked, fitting, walked, unfinished := 0, 0, 0, 0
	for seed := *oracleSeed; checked < *oracleCases; seed++ {
		s := randomScenario(rand.New(rand.NewPCG(1, seed)))
		o := newOracle(s)
		score, where, complete := o.best()
		if !complete {
			unfinished++
			continue
		}
		checked++
		tree := mustTree(t, &s.node)
		req := mustRequest(t, &s.pod, s.spec)
		used := tree.Dense(s.node.Used)
		before := slices.Clone(used)
		placer.reset(tree, used, req)
		exact := placer.searchAll()
		if exact.LimitHit {
			t.Fatalf("step limit hit after %d steps\nnode: %v\npod: %v", exact.Steps, s.node, s.pod)
		}
		if exact.Fits != (where != nil) {
			t.Fatalf("fits %v, the oracle says %v\nnode: %v\npod: %v\nspec: %v\noracle: %v",
				exact.Fits, where != nil, s.node, s.pod, s.spec, where)
		}
		got := placer.Place(tree, used, req)
		if got.Fits != exact.Fits {
			t.Fatalf("placed %v, the exact search says %v\nnode: %v\npod: %v", got.Fits, exact.Fits, s.node, s.pod)
		}
		if !slices.Equal(before, used) {
			t.Fatal("placing changed the vector of used quantities")
		}
		if again := placer.Place(tree, used, req); !cmp.Equal(got, again) {
			t.Fatalf("the same input gave two placements: %v and %v", got, again)
		}
		if !exact.Fits {
			if reason := Explain(tree, used, req, got); reason.String() == "" || reason.Cause == Unknown {
				t.Fatalf("no reason: %+v", reason)
			}
			continue
		}
		fitting++
		checkValid(t, s, tree, req, exact)
		checkValid(t, s, tree, req, got)
		if math.Abs(exact.Score-score) > 2e-9 {
			t.Fatalf("score %v, the oracle found %v\nnode: %v\npod: %v", exact.Score, score, s.node, s.pod)
		}
		if diff := cmp.Diff(where, locations(s, tree, req, exact)); diff != "" && math.Abs(exact.Score-score) < 1e-12 {
			t.Fatalf("not the first by name (-oracle +search):\n%s\nnode: %v\npod: %v", diff, s.node, s.pod)
		}
		if !got.Exact {
			walked++
			if got.Score > exact.Score+2e-9 {
				t.Fatalf("the walk scores %v, the exact search only %v", got.Score, exact.Score)
			}
			if want := s.score(locations(s, tree, req, got)); math.Abs(got.Score-want) > 1e-12 {
				t.Fatalf("the walk's score is %v, want %v\nnode: %v\npod: %v", got.Score, want, s.node, s.pod)
			}
		}
		checkAccounting(t, s, tree, req, got, used)
	}
	t.Logf("%d cases checked, %d fit, %d of them by the walk; %d were too large for the oracle",
		checked, fitting, walked, unfinished)
	if unfinished > checked || fitting < checked/10 || walked == fitting {
		t.Error("the random cases are not varied enough")
	}
}

// checkAccounting adds the holdings of a placed pod to the used quantities. It checks that no
// resource is over-committed, and that the list and the vector of used quantities agree.
func checkAccounting(t *testing.T, s *scenario, tree *DeviceTree, req *Request, p *Placement, used []int64) {
	t.Helper()
	pod := s.pod
	req.Apply(tree, p, &pod)
	held := Holdings(&pod, s.spec)
	vector, list := slices.Clone(used), types.ResourceList{}
	maps.Copy(list, s.node.Used)
	tree.Take(vector, held)
	Take(list, held)
	for i := range vector {
		if vector[i] > used[i] && vector[i] > tree.Allocatable(i) {
			t.Fatalf("%s is over-committed: %d of %d", tree.Name(i), vector[i], tree.Allocatable(i))
		}
		if tree.mode[i] != enum && vector[i] != max(0, list[tree.Name(i)]) {
			t.Fatalf("%s: %d used in the vector, %d in the list", tree.Name(i), vector[i], list[tree.Name(i)])
		}
	}
}

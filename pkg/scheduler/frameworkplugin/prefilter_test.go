// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// begin runs PreFilter, and returns the names of the nodes that are not left out.
func (f *fixture) begin(pod *v1.Pod) (fwk.CycleState, sets.Set[string]) {
	f.Helper()
	state := framework.NewCycleState()
	result, status, _ := f.framework.RunPreFilterPlugins(f.Context(), state, pod)
	if !status.IsSuccess() {
		f.Fatal(status)
	}
	if !result.AllNodes() {
		return state, result.NodeNames
	}
	all := sets.New[string]()
	for _, node := range f.nodes() {
		all.Insert(node.Node().Name)
	}
	return state, all
}

// mostlyFull returns a fixture with this number of nodes, n0 and so on, of one GPU each, of which
// so many are full.
func mostlyFull(t *testing.T, count, full int) *fixture {
	nodes := make([]*v1.Node, count)
	var holders []*v1.Pod
	for i := range nodes {
		nodes[i] = newNode(fmt.Sprint("n", i), "A")
		if i < full {
			name := fmt.Sprint("holder-", i)
			holders = append(holders, annotated(assumed(newPod(name, 1), nodes[i].Name),
				allocationOf(name, nodes[i].Name, "A")))
		}
	}
	return newFixture(t, nodes, holders...)
}

func TestNodesThatAreKnownToBeFullAreLeftOutWhereThatPays(t *testing.T) {
	for name, test := range map[string]struct{ nodes, full, want int }{
		"none is full":        {12, 0, 12},
		"hardly any":          {12, 1, 12},
		"one in six":          {12, 2, 10},
		"all but one":         {12, 11, 1},
		"all, which say why":  {12, 12, 12},
		"the only one":        {1, 1, 1},
		"the only one, empty": {1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := mostlyFull(t, test.nodes, test.full)
			if _, names := f.begin(newPod("first", 1)); len(names) != test.nodes {
				t.Errorf("%d nodes remain before any has answered, want %d", len(names), test.nodes)
			}
			f.cycleOn(newPod("second", 1))
			_, names := f.begin(newPod("third", 1))
			if len(names) != test.want {
				t.Errorf("%d nodes remain, want %d", len(names), test.want)
			}
			for i := test.full; i < test.nodes; i++ {
				if !names.Has(fmt.Sprint("n", i)) {
					t.Errorf("n%d has room, and was left out", i)
				}
			}
		})
	}
}

func TestANodeThatHasRoomAgainIsNotLeftOut(t *testing.T) {
	f := mostlyFull(t, 3, 1)
	f.reserve(newPod("p", 1), "n1")
	nodeInfo, err := f.framework.SnapshotSharedLister().NodeInfos().Get("n1")
	if err != nil {
		t.Fatal(err)
	}
	on := nodeInfo.(*framework.NodeInfo)
	on.AddPod(assumed(newPod("p", 1), "n1"))
	f.cycleOn(newPod("q", 1))
	if _, names := f.begin(newPod("r", 1)); !names.Equal(sets.New("n2")) {
		t.Errorf("%v remain, want n2", names)
	}
	f.plugin.nodes.Unreserve("n1", "p")
	if err := on.RemovePod(klog.Background(), on.Pods[0].GetPod()); err != nil {
		t.Fatal(err)
	}
	if _, names := f.begin(newPod("s", 1)); !names.Equal(sets.New("n1", "n2")) {
		t.Errorf("%v remain, want n1, which has its GPU back, and n2", names)
	}
}

// What PostFilter adds is what Filter would have said.
func TestNodesThatWereLeftOutAreCheckedWhenThePodFitsNowhereElse(t *testing.T) {
	f := mostlyFull(t, 4, 3)
	pod := newPod("p", 1)
	want := map[string]string{}
	state, _ := f.begin(pod)
	for _, node := range f.nodes() {
		if status := f.framework.RunFilterPlugins(t.Context(), state, pod, node); !status.IsSuccess() {
			want[node.Node().Name] = status.Code().String() + ": " + status.Message()
		}
	}

	pod = newPod("q", 1)
	state, names := f.begin(pod)
	if !names.Equal(sets.New("n3")) {
		t.Fatalf("%v remain, want n3", names)
	}
	said := framework.NewDefaultNodeToStatus()
	said.Set("n3", fwk.NewStatus(fwk.Unschedulable, "too few CPUs"))
	want["n3"] = "Unschedulable: too few CPUs"
	if result, status := f.plugin.PostFilter(t.Context(), state, pod, said); result != nil ||
		status.Code() != fwk.Unschedulable || status.Message() != "" {
		t.Errorf("%v and %v %q, want the next plugin to make room", result, status.Code(), status.Message())
	}
	got := map[string]string{}
	said.ForEachExplicitNode(func(name string, status *fwk.Status) {
		got[name] = status.Code().String() + ": " +
			status.Message()
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what nodes say (-want +got):\n%s", diff)
	}
}

func TestNoNodeIsLeftOutWhenOtherPluginsMayPreFilter(t *testing.T) {
	affinity := func(term v1.NodeSelectorTerm) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{term},
				},
			}}
		}
	}
	requirement := []v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorOpIn, Values: []string{"n2"}}}
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		want   int
	}{
		"a pod":                  {func(*v1.Pod) {}, 1},
		"one that wants a label": {affinity(v1.NodeSelectorTerm{MatchExpressions: requirement}), 1},
		"one that prefers not to say": {
			func(pod *v1.Pod) { pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}} }, 1,
		},
		"one that names nodes": {affinity(v1.NodeSelectorTerm{MatchFields: requirement}), 3},
		"one of a group":       {func(pod *v1.Pod) { pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{} }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := mostlyFull(t, 3, 2)
			pod := newPod("p", 1)
			test.change(pod)
			f.cycleOn(pod)
			if _, names := f.begin(pod); len(names) != test.want {
				t.Errorf("%d nodes remain, want %d", len(names), test.want)
			}
		})
	}
}

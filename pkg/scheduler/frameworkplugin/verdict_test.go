// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cycleOn runs a pod's cycle up to Filter on all nodes, and returns for which of them the answer
// was known before Filter.
func (f *fixture) cycleOn(pod *v1.Pod) (known map[string]bool) {
	f.Helper()
	nodes := f.nodes()
	state := framework.NewCycleState()
	if _, status, _ := f.framework.RunPreFilterPlugins(f.Context(), state, pod); !status.IsSuccess() {
		f.Fatal(status)
	}
	known = map[string]bool{}
	verdicts := f.plugin.cycleOf(state).verdicts
	for _, nodeInfo := range nodes {
		found, _ := verdicts.Get(nodeInfo)
		known[nodeInfo.Node().Name] = found != nil
		f.framework.RunFilterPlugins(f.Context(), state, pod, nodeInfo)
	}
	return known
}

func TestPodsThatRequestTheSameShareTheAnswersOfNodesThatDoNotChange(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("a", "A", "B"), newNode("b", "A", "B")})
	step := func(what string, pod *v1.Pod, a, b bool) {
		t.Helper()
		if known := f.cycleOn(pod); known["a"] != a || known["b"] != b {
			t.Errorf("%s: known of a and b are %t and %t, want %t and %t", what, known["a"], known["b"], a, b)
		}
	}
	step("the first pod", newPod("p", 1), false, false)
	step("one that requests the same", newPod("q", 1), true, true)
	step("one that requests something else", newPod("r", 2), false, false)
	step("and one after that", newPod("s", 2), true, true)
	step("the first kind is not forgotten meanwhile", newPod("t", 1), true, true)
	f.reserve(newPod("p", 1), "a")
	step("after a reservation", newPod("q", 1), false, true)
	step("and again", newPod("q", 1), true, true)
	f.plugin.nodes.Unreserve("a", "p")
	step("after it was given back", newPod("q", 1), false, true)
	nodes := f.nodes()
	nodes[1].(*framework.NodeInfo).AddPod(assumed(newPod("late", 1), nodes[1].Node().Name))
	step("after a pod came", newPod("q", 1), nodes[1].Node().Name != "a", nodes[1].Node().Name != "b")
}

// What a remembered answer says of one pod's cycle is what a new one says: the same nodes fit,
// with the same scores and for the same reasons.
func TestARememberedAnswerSaysWhatTheFirstSaid(t *testing.T) {
	held := annotated(assumed(newPod("held", 1), "half"), allocationOf("held", "half", "A"))
	f := newFixture(t, []*v1.Node{newNode("half", "A", "B"), newNode("whole", "A", "B"), newNode("none")}, held)
	for _, count := range []int64{1, 2, 3} {
		for _, node := range []string{"half", "whole", "none"} {
			nodeInfo, err := f.framework.SnapshotSharedLister().NodeInfos().Get(node)
			if err != nil {
				t.Fatal(err)
			}
			score := func(state fwk.CycleState, pod *v1.Pod, status *fwk.Status) int64 {
				if !status.IsSuccess() {
					return 0
				}
				return f.scores(state, pod, nodeInfo)[0]
			}
			first, again := newPod("first", count), newPod("again", count)
			state, want := f.fit(first, node)
			wantScore := score(state, first, want)
			state, got := f.fit(again, node)
			if gotScore := score(state, again, got); got.Code() != want.Code() || got.Message() != want.Message() ||
				gotScore != wantScore {
				t.Errorf("%d GPUs on %s: %v %q, score %d, after %v %q, score %d", count, node,
					got.Code(), got.Message(), gotScore, want.Code(), want.Message(), wantScore)
			}
		}
	}
}

func TestVerdictsOfAnImpurePluginAreNotCached(t *testing.T) {
	f := newFixtureOf(t, &gpus{whimsical: true}, []*v1.Node{newNode("n", "A")})
	for _, name := range []string{"p", "q"} {
		if known := f.cycleOn(newPod(name, 1)); known["n"] {
			t.Errorf("the answer for pod %s was known before the plugin was asked", name)
		}
	}
}

// moody is gpus that only translate, otherwise when a node says so.
type moody struct {
	*gpus
	revision atomic.Uint64
}

func (m *moody) Revision() uint64              { return m.revision.Load() }
func (*moody) Pure() bool                      { return false }
func (m *moody) AddNode(string, *sdk.NodeInfo) { m.revision.Add(1) }

func TestAnswersOfAPluginThatTranslatesOtherwiseNowAreNotRemembered(t *testing.T) {
	f := newFixtureOf(t, &moody{gpus: &gpus{}}, []*v1.Node{newNode("n", "A")})
	f.cycleOn(newPod("p", 1))
	if known := f.cycleOn(newPod("q", 1)); !known["n"] {
		t.Fatal("no answer is remembered")
	}
	before, _ := f.plugin.schedulers.Era()
	if _, err := f.client.CoreV1().Nodes().Create(t.Context(), newNode("other", "B"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the plugin gets the node",
		func() bool { era, _ := f.plugin.schedulers.Era(); return era != before })
	if known := f.cycleOn(newPod("r", 1)); known["n"] {
		t.Error("an answer is remembered that the plugin would not give any more")
	}
}

func TestNoAnswerIsRememberedWhileAPluginIsQuarantined(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	f.cycleOn(newPod("p", 1))
	f.schedulers.panics = true
	f.cycleOn(newPod("x", 2)) // which no pod has requested before
	if known := f.cycleOn(newPod("q", 1)); known["n"] {
		t.Error("a node is said to fit by a plugin that would not allocate")
	}
}

func TestAnAnswerThatWasCutShortIsComputedAgain(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	f.cycleOn(newPod("p", 1))
	nodeInfo := f.nodes()[0].(*framework.NodeInfo)
	state, _ := f.fit(newPod("p", 1), "n")
	verdicts := f.plugin.cycleOf(state).verdicts
	found, _ := verdicts.Get(nodeInfo)
	cut := *found
	cut.LimitHit = true
	verdicts.Put(nodeInfo, f.plugin.nodes.Snapshot(nodeInfo).Devices, &cut)
	if known := f.cycleOn(newPod("q", 1)); known["n"] {
		t.Error("it was taken over, so it is neither counted nor logged")
	}
}

// manyNodes returns as many nodes of one GPU, called n0 and so on.
func manyNodes(count int) (nodes []*v1.Node) {
	for i := range count {
		nodes = append(nodes, newNode(fmt.Sprint("n", i), fmt.Sprint("gpu-", i)))
	}
	return nodes
}

// Where nearly all nodes are known to fit, only the others are looked up, and those that a
// simulation has changed.
func TestANodeThatASimulationHasChangedIsCheckedThoughAllAreKnownToFit(t *testing.T) {
	f := newFixture(t, manyNodes(20))
	f.cycleOn(newPod("p", 1))
	f.reserve(newPod("taker", 1), "n3")
	pod := newPod("q", 1)
	state, status := f.fit(pod, "n3")
	if unverified := f.plugin.cycleOf(state).unverified; len(unverified) != 1 {
		t.Fatalf("%d nodes are in doubt, want the one that has changed", len(unverified))
	}
	if !status.IsSuccess() { // the snapshot does not list the pod
		t.Error(status)
	}
	for _, nodeInfo := range f.nodes() {
		if status := f.framework.RunFilterPlugins(t.Context(), state, pod, nodeInfo); !status.IsSuccess() {
			t.Errorf("%s: %v", nodeInfo.Node().Name, status)
		}
		changed := nodeInfo.Snapshot()
		name := nodeInfo.Node().Name
		gpu := strings.Replace(name, "n", "gpu-", 1)
		info, err := framework.NewPodInfo(annotated(assumed(newPod("nominated", 1), name),
			allocationOf("nominated", name, gpu)))
		if err != nil {
			t.Fatal(err)
		}
		changed.AddPodInfo(info)
		if status := f.framework.RunFilterPlugins(t.Context(), state.Clone(), pod, changed); status.IsSuccess() {
			t.Errorf("the pod fits %s, whose GPU another has in the simulation", name)
		}
	}
}

func TestNodesThatAreKnownNotToFitAreInDoubt(t *testing.T) {
	held := annotated(assumed(newPod("held", 1), "n7"), allocationOf("held", "n7", "gpu-7"))
	f := newFixture(t, manyNodes(20), held)
	f.cycleOn(newPod("p", 1))
	for _, nodeInfo := range f.nodes() {
		name := nodeInfo.Node().Name
		state, status := f.fit(newPod("q", 1), name)
		if unverified := f.plugin.cycleOf(state).unverified; len(unverified) != 1 {
			t.Fatalf("%d nodes are in doubt, want the one that is full", len(unverified))
		}
		if status.IsSuccess() == (name == "n7") {
			t.Errorf("%s: %v", name, status)
		}
	}
}

// Upstream scores a node again that it has scored before, with a clone of the state and in another
// order of the nodes, when pods are batched.
func TestScoresAreThoseOfTheNodesInAnyOrder(t *testing.T) {
	held := annotated(assumed(newPod("held", 1), "half"), allocationOf("held", "half", "A"))
	f := newFixture(t, []*v1.Node{newNode("half", "A", "B"), newNode("whole", "A", "B"),
		newNode("large", "A", "B", "C", "D")}, held)
	pod := newPod("p", 1)
	state, _ := f.fit(pod, "half")
	nodes := f.nodes()
	want := map[string]int64{}
	for i, score := range f.scores(state, pod, nodes...) {
		want[nodes[i].Node().Name] = score
	}
	if want["half"] != 100 || want["whole"] != 50 || want["large"] != 25 {
		t.Errorf("scores are %v, want the part of the GPUs that are used then", want)
	}
	for range nodes {
		nodes = append(nodes[1:], nodes[0])
		again := state.Clone()
		if status := f.framework.RunPreScorePlugins(t.Context(), again, pod, nodes); !status.IsSuccess() {
			t.Fatal(status)
		}
		scores := make([]fwk.NodePluginScores, len(nodes))
		for i, nodeInfo := range nodes {
			raw, status := f.framework.RunRawScorePlugins(t.Context(), again, pod, nodeInfo)
			if !status.IsSuccess() {
				t.Fatal(status)
			}
			scores[i] = fwk.NodePluginScores{Name: nodeInfo.Node().Name, RawScores: raw}
		}
		if status := f.framework.NormalizeScores(t.Context(), again, pod, scores); !status.IsSuccess() {
			t.Fatal(status)
		}
		for _, score := range scores {
			if score.TotalScore != want[score.Name] {
				t.Errorf("%s has %d, want %d", score.Name, score.TotalScore, want[score.Name])
			}
		}
	}
}

func TestScoringWithoutPreScoreSaysWhatToEnable(t *testing.T) {
	f := newFixture(t, manyNodes(2))
	pod := newPod("p", 1)
	state, _ := f.fit(pod, "n0")
	if _, status := f.framework.RunScorePlugins(t.Context(), state, pod, f.nodes()); !strings.Contains(status.Message(),
		"must enable it for preScore too") {
		t.Errorf("RunScorePlugins says %v", status)
	}
}

// The preemption of a pod group changes the snapshot itself, and asks on in the cycle that was
// begun before.
func TestANodeThatHasChangedSinceTheCycleBeganIsEvaluatedAgainForAGroup(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	pod := newPod("p", 1)
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	state, status := f.fit(pod, "n")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	nodeInfo := f.nodes()[0].(*framework.NodeInfo)
	nodeInfo.AddPod(annotated(assumed(newPod("victim", 1), "n"), allocationOf("victim", "n", "A")))
	if status := f.framework.RunFilterPlugins(t.Context(), state, pod, nodeInfo); status.IsSuccess() {
		t.Error("the pod fits a node whose GPU another has")
	}
	if err := nodeInfo.RemovePod(klog.Background(), nodeInfo.Pods[0].GetPod()); err != nil {
		t.Fatal(err)
	}
	if status := f.framework.RunFilterPlugins(t.Context(), state, pod, nodeInfo); !status.IsSuccess() {
		t.Errorf("the pod does not fit though the other has left: %v", status)
	}
}

func TestMetricsReportWhatLeavesTheVerdictCache(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("a", "A", "B"), newNode("b", "A", "B")})
	step := func(reason string, change func()) {
		t.Helper()
		f.cycleOn(newPod("p", 1))
		dropped, size := f.dropped(reason), f.size()
		change()
		f.cycleOn(newPod("q", 1))
		if got := f.dropped(reason) - dropped; got != 1 {
			t.Errorf("%v verdicts were dropped for %s, want 1", got, reason)
		}
		if got := f.size(); got != size {
			t.Errorf("%v verdicts are cached after a change for %s, want %v as before", got, reason, size)
		}
	}
	step("reservation", func() { f.reserve(newPod("r", 1), "a") })
	step("node_info", func() { f.nodes()[0].(*framework.NodeInfo).AddPod(newPod("plain", 0)) })
}

// dropped returns how many verdicts have left the cache for a reason.
func (f *fixture) dropped(reason string) float64 {
	f.Helper()
	count, err := testutil.GetCounterMetricValue(metrics.VerdictCacheInvalidations.WithLabelValues(reason))
	if err != nil {
		f.Fatal(err)
	}
	return count
}

// size returns how many verdicts are cached.
func (f *fixture) size() float64 {
	f.Helper()
	size, err := testutil.GetGaugeMetricValue(metrics.VerdictCacheSize)
	if err != nil {
		f.Fatal(err)
	}
	return size
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cycleOn runs a pod's cycle up to Filter on all nodes, and returns for which of them the answer was known before Filter.
func (r *rig) cycleOn(pod *v1.Pod) (known map[string]bool) {
	r.Helper()
	nodes := r.nodes()
	state := framework.NewCycleState()
	if _, status, _ := r.framework.RunPreFilterPlugins(r.Context(), state, pod); !status.IsSuccess() {
		r.Fatal(status)
	}
	known = map[string]bool{}
	survey := r.plugin.cycleOf(state).survey
	for _, nodeInfo := range nodes {
		known[nodeInfo.Node().Name] = survey.verdict(survey.findUnchanged(nodeInfo)) != nil
		r.framework.RunFilterPlugins(r.Context(), state, pod, nodeInfo)
	}
	return known
}

func TestPodsThatAskForTheSameShareTheAnswersOfNodesThatDoNotChange(t *testing.T) {
	r := newRig(t, []*v1.Node{newNode("a", "A", "B"), newNode("b", "A", "B")})
	step := func(what string, pod *v1.Pod, a, b bool) {
		t.Helper()
		if known := r.cycleOn(pod); known["a"] != a || known["b"] != b {
			t.Errorf("%s: known of a and b are %t and %t, want %t and %t", what, known["a"], known["b"], a, b)
		}
	}
	step("the first pod", newPod("p", 1), false, false)
	step("one that asks for the same", newPod("q", 1), true, true)
	step("one that asks for something else", newPod("r", 2), false, false)
	step("and one after that", newPod("s", 2), true, true)
	step("the first kind is not forgotten meanwhile", newPod("t", 1), true, true)
	r.reserve(newPod("p", 1), "a")
	step("after a reservation", newPod("q", 1), false, true)
	step("and again", newPod("q", 1), true, true)
	r.plugin.nodes.Unreserve("a", "p")
	step("after it was given back", newPod("q", 1), false, true)
	nodes := r.nodes()
	nodes[1].(*framework.NodeInfo).AddPod(assumed(newPod("late", 1), nodes[1].Node().Name))
	step("after a pod came", newPod("q", 1), nodes[1].Node().Name != "a", nodes[1].Node().Name != "b")
}

// What a remembered answer says of one pod's cycle is what asking anew says: the same nodes fit, with the same scores and
// for the same reasons.
func TestARememberedAnswerSaysWhatTheFirstSaid(t *testing.T) {
	held := annotated(assumed(newPod("held", 1), "half"), gave("held", "half", "A"))
	r := newRig(t, []*v1.Node{newNode("half", "A", "B"), newNode("whole", "A", "B"), newNode("none")}, held)
	for _, count := range []int64{1, 2, 3} {
		for _, node := range []string{"half", "whole", "none"} {
			nodeInfo, err := r.framework.SnapshotSharedLister().NodeInfos().Get(node)
			if err != nil {
				t.Fatal(err)
			}
			score := func(state fwk.CycleState, pod *v1.Pod, status *fwk.Status) int64 {
				if !status.IsSuccess() {
					return 0
				}
				score, status := r.plugin.Score(t.Context(), state, pod, nodeInfo)
				if !status.IsSuccess() {
					t.Fatal(status)
				}
				return score
			}
			first, again := newPod("first", count), newPod("again", count)
			state, want := r.fit(first, node)
			wantScore := score(state, first, want)
			state, got := r.fit(again, node)
			if gotScore := score(state, again, got); got.Code() != want.Code() || got.Message() != want.Message() || gotScore != wantScore {
				t.Errorf("%d GPUs on %s: %v %q, score %d, after %v %q, score %d", count, node,
					got.Code(), got.Message(), gotScore, want.Code(), want.Message(), wantScore)
			}
		}
	}
}

func TestAnswersOfAPluginThatMayChangeItsMindAreNotRemembered(t *testing.T) {
	r := newRigOf(t, &gpus{whimsical: true}, []*v1.Node{newNode("n", "A")})
	for _, name := range []string{"p", "q"} {
		if known := r.cycleOn(newPod(name, 1)); known["n"] {
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
	r := newRigOf(t, &moody{gpus: &gpus{}}, []*v1.Node{newNode("n", "A")})
	r.cycleOn(newPod("p", 1))
	if known := r.cycleOn(newPod("q", 1)); !known["n"] {
		t.Fatal("no answer is remembered")
	}
	before, _ := r.plugin.schedulers.Era()
	if _, err := r.client.CoreV1().Nodes().Create(t.Context(), newNode("other", "B"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the plugin is told of the node", func() bool { era, _ := r.plugin.schedulers.Era(); return era != before })
	if known := r.cycleOn(newPod("r", 1)); known["n"] {
		t.Error("an answer is remembered that the plugin would not give any more")
	}
}

func TestNoAnswerIsRememberedWhileAPluginIsSetAside(t *testing.T) {
	r := newRig(t, []*v1.Node{newNode("n", "A")})
	r.cycleOn(newPod("p", 1))
	r.schedulers.panics = true
	for count := range int64(3) {
		r.cycleOn(newPod("x", 2+count)) // which nobody has asked before
	}
	if known := r.cycleOn(newPod("q", 1)); known["n"] {
		t.Error("a node is said to fit by a plugin that would not allocate")
	}
}

func TestAnAnswerThatWasCutShortIsGivenAnew(t *testing.T) {
	r := newRig(t, []*v1.Node{newNode("n", "A")})
	r.cycleOn(newPod("p", 1))
	request, err := r.plugin.nodes.Request(newPod("p", 1))
	if err != nil {
		t.Fatal(err)
	}
	last, _ := r.plugin.surveyor.kinds.Get(r.plugin.schedulers.Digest(request))
	survey := last.(*survey)
	cut := *survey.verdict(0)
	cut.Cut = true
	survey.note(0, survey.states[0], &cut)
	if known := r.cycleOn(newPod("q", 1)); known["n"] {
		t.Error("it was taken over, so nobody counts or logs it")
	}
}

// The preemption of a pod group changes the snapshot itself, and asks on in the cycle that was begun before.
func TestANodeThatHasChangedSinceTheCycleBeganIsAskedAnewForAGroup(t *testing.T) {
	r := newRig(t, []*v1.Node{newNode("n", "A")})
	pod := newPod("p", 1)
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	state, status := r.fit(pod, "n")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	nodeInfo := r.nodes()[0].(*framework.NodeInfo)
	nodeInfo.AddPod(annotated(assumed(newPod("victim", 1), "n"), gave("victim", "n", "A")))
	if status := r.framework.RunFilterPlugins(t.Context(), state, pod, nodeInfo); status.IsSuccess() {
		t.Error("the pod fits a node whose GPU another has")
	}
	if err := nodeInfo.RemovePod(klog.Background(), nodeInfo.Pods[0].GetPod()); err != nil {
		t.Fatal(err)
	}
	if status := r.framework.RunFilterPlugins(t.Context(), state, pod, nodeInfo); !status.IsSuccess() {
		t.Errorf("the pod does not fit though the other has left: %v", status)
	}
}

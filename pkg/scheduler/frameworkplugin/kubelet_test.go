// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// kubeletNode returns a node whose kubelet counts eight GPUs, and which says nothing of devices.
func kubeletNode(name string) *v1.Node {
	gpus := v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Status:     v1.NodeStatus{Capacity: gpus, Allocatable: gpus},
	}
}

// requesting adds a container's request for one of an extended resource.
func requesting(pod *v1.Pod, extended v1.ResourceName) *v1.Pod {
	pod = pod.DeepCopy()
	pod.ResourceVersion += string(extended)
	requests := v1.ResourceList{extended: resource.MustParse("1")}
	for name, quantity := range pod.Spec.Containers[0].Resources.Requests {
		requests[name] = quantity
	}
	pod.Spec.Containers[0].Resources.Requests = requests
	return pod
}

func TestEachNodeDecidesWhoServesAResourceThere(t *testing.T) {
	const (
		pair     = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/x/cards":1}}}}`
		topology = `{"requests":{"gpu/gpu-generate-topology":1}}`
	)
	forged := annotated(newPod("p", 1), allocationOf("p", "ours", "A"))
	chosen, leftOut := newPod("p", 1), newPod("p", 1)
	chosen.Annotations = map[string]string{"nvidia.com/use-gpuuuid": "A"}
	leftOut.Annotations = map[string]string{"nvidia.com/nouse-gpuuuid": "A"}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want string // the nodes that fit
	}{
		"a count fits both kinds of nodes":                 {newPod("p", 1), "kubelets ours"},
		"a count of more than ours has":                    {newPod("p", 2), "kubelets"},
		"a request in the annotation needs a node of ours": {annotated(newPod("p", 1), pair), ""},
		"so does one for how devices are chosen":           {annotated(newPod("p", 1), topology), "ours"},
		"so does a GPU by its UUID":                        {chosen, "ours"},
		"and one that is left out by it":                   {leftOut, ""},
		"a forged allocation":                              {forged, "kubelets ours"},
		"a resource that no node lists, next to a device":  {requesting(newPod("p", 1), "rdma/hca"), "kubelets ours"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []*v1.Node{newNode("ours", "A"), kubeletNode("kubelets")})
			var fits []string
			for _, node := range []string{"kubelets", "ours"} {
				if _, status := f.fit(test.pod, node); status.IsSuccess() {
					fits = append(fits, node)
				}
			}
			if got := strings.Join(fits, " "); got != test.want {
				t.Errorf("fits on %q, want %q", got, test.want)
			}
		})
	}
}

// What a node of the kubelet's counts is bound by upstream, as if there were no KubeDevice.
func TestNothingIsWrittenForDevicesThatAKubeletCounts(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("ours", "A"), kubeletNode("kubelets")})
	plain := newPod("plain", 1)
	f.add(plain)
	state := f.reserve(plain, "kubelets")
	if status := f.bind(state, plain, "kubelets"); status.Code() != fwk.Skip || len(f.bindings()) > 0 {
		t.Errorf("Bind says %v and makes %v, want that it is left to the next plugin", status, f.bindings())
	}
	if got := f.plugin.nodes.Reserved("kubelets", plain.UID); got != "" {
		t.Errorf("reserved: %s", got)
	}

	forged := annotated(newPod("forged", 1), allocationOf("forged", "kubelets", "A"))
	f.add(forged)
	if status := f.bind(f.reserve(forged, "kubelets"), forged, "kubelets"); !status.IsSuccess() {
		t.Fatal(status)
	}
	want := `{"podname":"forged","nodename":"kubelets","runningcontainer":{"main":{}}}`
	if got := f.bindings()[0].Annotations[deviceinfo.Annotation]; got != want {
		t.Errorf("bound with %s, want %s", got, want)
	}
}

// Of two resources of one pod, one is a device on the node, and its kubelet counts the other.
func TestAnAllocationHasOnlyWhatIsADeviceOnTheNode(t *testing.T) {
	ours := newNode("ours", "A")
	ours.Status.Allocatable = v1.ResourceList{"rdma/hca": resource.MustParse("1")}
	liar := newNode("liar")
	liar.Annotations[deviceinfo.Annotation] = `{"capacity":{"rdma/hca":1}}`
	f := newFixture(t, []*v1.Node{ours, liar})
	pod := requesting(newPod("p", 1), "rdma/hca")
	f.add(pod)
	if status := f.bind(f.reserve(pod, "ours"), pod, "ours"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if got := f.bindings()[0].Annotations[deviceinfo.Annotation]; got != allocationOf("p", "ours", "A") {
		t.Errorf("bound with %s", got)
	}
}

// A liar lists what it does not have, under names of all kinds. Nothing changes for other nodes.
func TestReportsOfANodeAffectNoOtherNode(t *testing.T) {
	const names = `"rdma/hca":1,"cpu":1,"memory":1,"pods":1,"kubernetes.io/x":1,"requests.nvidia.com/gpu":1,` +
		`"a b/c":1,"nvidia.com/gpu":8,"x":1,"/":1,"resource/group/numa/0/rdma:hca/h0/device":1,` +
		`"resource/group/numa/0/kubernetes.io:x/h0/device":1,"resource/group/gpu/X/cards":1`
	liar := newNode("liar")
	liar.Annotations[deviceinfo.Annotation] = `{"capacity":{` + names + `},"allocatable":{` + names + `}}`
	kubelets := kubeletNode("kubelets")
	kubelets.Status.Allocatable["rdma/hca"] = resource.MustParse("1")
	honest := []*v1.Node{newNode("ours", "A", "B"), kubelets}

	pods := map[string]*v1.Pod{
		"one without devices": newPod("p", 0),
		"a GPU":               newPod("p", 1),
		"three GPUs":          newPod("p", 3),
		"rdma":                requesting(newPod("p", 0), "rdma/hca"),
		"rdma and a GPU":      requesting(newPod("p", 1), "rdma/hca"),
		"what no node has":    requesting(newPod("p", 0), "example.com/nothing"),
		"an annotation and a count": annotated(newPod("p", 1),
			`{"runningcontainer":{"main":{"requests":{"gpu/a/cards":1}}}}`),
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			says := func(nodes ...*v1.Node) (answers []string) {
				f := newFixture(t, nodes)
				for _, node := range honest {
					state := framework.NewCycleState()
					_, status, skipped := f.framework.RunPreFilterPlugins(t.Context(), state, pod)
					if status.IsSuccess() && !skipped.Has(Name) {
						nodeInfo, err := f.framework.SnapshotSharedLister().NodeInfos().Get(node.Name)
						if err != nil {
							t.Fatal(err)
						}
						status = f.plugin.Filter(t.Context(), state, pod, nodeInfo)
					}
					if status.IsSuccess() {
						bound := assumed(pod, node.Name)
						status = f.framework.RunReservePluginsReserve(t.Context(), state, bound, node.Name)
					}
					answers = append(answers, node.Name+": "+answer(status))
				}
				return answers
			}
			without, with := says(honest...), says(append(slices.Clone(honest), liar)...)
			if diff := cmp.Diff(without, with); diff != "" {
				t.Errorf("honest nodes (-without the liar +with it):\n%s", diff)
			}
		})
	}
}

func TestNeitherKindOfNodesIsFilledFirst(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("half", "A", "B"), newNode("whole", "A"), kubeletNode("kubelets")})
	pod := newPod("p", 1)
	state, status := f.fit(pod, "half")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	scores := map[string]int64{}
	nodes := f.nodes()
	for i, score := range f.scores(state, pod, nodes...) {
		scores[nodes[i].Node().Name] = score
	}
	if diff := cmp.Diff(map[string]int64{"half": 50, "whole": 100, "kubelets": 75}, scores); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
}

// A node that begins to list a resource while a pod that seemed to request no device is about to
// get it: the pod is scheduled again. That another node begins to list it is of no concern.
func TestAPodIsScheduledAgainWhenItsOwnNodeBeginsToListTheResource(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A"), newNode("other", "A")})
	pod := requesting(newPod("p", 0), "rdma/hca")
	state, _ := f.fit(pod, "n")
	list := func(name string) {
		t.Helper()
		node := newNode(name)
		node.ResourceVersion = "2"
		node.Annotations[deviceinfo.Annotation] = `{"capacity":{"rdma/hca":1}}`
		if err := f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			t.Fatal(err)
		}
		await(t, "the plugin knows the node", func() bool {
			return f.plugin.nodes.RequestsFrom(t.Context(), node, pod)
		})
	}
	list("other")
	if status := f.plugin.Reserve(t.Context(), state, pod, "n"); !status.IsSuccess() {
		t.Errorf("another node lists it: %v", status)
	}
	list("n")
	if status := f.plugin.Reserve(t.Context(), state, pod, "n"); status.Code() != fwk.Error {
		t.Errorf("its own node lists it: %v", status)
	}
}

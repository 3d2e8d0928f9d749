// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// pairs returns nodes of four GPUs in two NVLink pairs, A with B and C with D, each with this much
// memory.
func pairs(count int, prefix string, memory int64) []*v1.Node {
	nodes := make([]*v1.Node, count)
	for i := range nodes {
		nodes[i] = newNode(fmt.Sprintf("%s%d", prefix, i))
		info := sdk.NewNodeInfoWithName(nodes[i].Name)
		info.Capacity["nvidia.com/gpu"] = 4
		for k, name := range []string{"A", "B", "C", "D"} {
			gpu := fmt.Sprintf("pair/%d/gpu/%s", k/2, name)
			sdk.AddGroupResource(info.Allocatable, gpu+"/cards", 1)
			sdk.AddGroupResource(info.Allocatable, gpu+"/memory", memory)
		}
		annotation, err := deviceinfo.EncodeNode(info)
		if err != nil {
			panic(err)
		}
		nodes[i].Annotations[deviceinfo.Annotation] = annotation
	}
	return nodes
}

// holding returns pods that hold these GPUs of a node of pairs.
func holding(node *v1.Node, gpus string) []*v1.Pod {
	var pods []*v1.Pod
	for _, gpu := range gpus {
		name := node.Name + string(gpu)
		path := fmt.Sprintf("resource/group/pair/%d/gpu/%c/cards", (gpu-'A')/2, gpu)
		pods = append(pods, annotated(assumed(newPod(name, 0), node.Name), fmt.Sprintf(
			`{"podname":%q,"nodename":%q,"runningcontainer":{"main":{"devrequests":{%q:1},"allocatefrom":{%q:%q}}}}`,
			name, node.Name, path, path, path)))
	}
	return pods
}

// anywhere returns the annotation of a pod that requests this many GPUs, wherever they are.
func anywhere(count int) string {
	var requests []string
	for i := range count {
		requests = append(requests, fmt.Sprintf(`"pair/%d/gpu/a/cards":1`, i))
	}
	return `{"runningcontainer":{"main":{"requests":{` + strings.Join(requests, ",") + `}}}}`
}

// message returns what upstream puts into the event of a pod that fits no node.
func (f *fixture) message(pod *v1.Pod) string {
	f.Helper()
	state := framework.NewCycleState()
	if _, status, _ := f.framework.RunPreFilterPlugins(f.Context(), state, pod); !status.IsSuccess() {
		f.Fatal(status)
	}
	nodes := f.nodes()
	failure := &framework.FitError{Pod: pod, NumAllNodes: len(nodes),
		Diagnosis: framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}}
	for _, nodeInfo := range nodes {
		status := f.framework.RunFilterPluginsWithNominatedPods(f.Context(), state, pod, nodeInfo)
		if status.IsSuccess() {
			f.Fatalf("the pod fits node %s", nodeInfo.Node().Name)
		}
		failure.Diagnosis.NodeToStatus.Set(nodeInfo.Node().Name, status)
	}
	return failure.Error()
}

func TestAnEventGroupsNodesByWhatTheyLack(t *testing.T) {
	const (
		twoOfAPair = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/cards":1,"pair/A/gpu/b/cards":1}}}}`
		pairOf40   = `{"runningcontainer":{"main":{"requests":{` +
			`"pair/A/gpu/a/cards":1,"pair/A/gpu/a/memory":42949672960,"pair/A/gpu/b/cards":1,"pair/A/gpu/b/memory":42949672960}}}}`
	)
	pod := func(annotation string) *v1.Pod { return annotated(newPod("p", 0), annotation) }
	large, small := pairs(8, "large", 80<<30), pairs(4, "small", 24<<30)
	for name, test := range map[string]struct {
		nodes   []*v1.Node
		holding []string // by node
		pod     *v1.Pod
		want    string
	}{
		"two reasons": {
			append(large, small...), []string{"AC", "BD", "AD", "AC", "BC", "AC", "AC", "ABC"}, pod(pairOf40),
			"0/12 nodes are available: 1 have fewer than 2 free GPUs (best: 1 free of 4), 4 have no GPU with 40 GiB " +
				"of memory (the largest has 24 GiB), " +
				"7 have fewer than 2 free GPUs in one NVLink pair (best: 1 free of 2).",
		},
		"numbers differ, the best node's count": {
			large[:3], []string{"AB", "ABC", "ABCD"}, pod(anywhere(3)),
			"0/3 nodes are available: 3 have fewer than 3 free GPUs (best: 2 free of 4).",
		},
		"the largest device of all": {
			append(pairs(1, "other", 32<<30), small...), nil, pod(pairOf40),
			"0/5 nodes are available: 5 have no GPU with 40 GiB of memory (the largest has 32 GiB).",
		},
		"one device": {
			large[:2], []string{"ABCD", "ABCD"}, pod(anywhere(1)),
			"0/2 nodes are available: 2 have no free GPU.",
		},
		"no such device": {
			[]*v1.Node{newNode("cpu"), newNode("cpu2"), large[0]}, []string{"", "", "AC"}, pod(twoOfAPair),
			"0/3 nodes are available: 1 have fewer than 2 free GPUs in one NVLink pair (best: 1 free of 2), 2 have " +
				"no GPU.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var holders []*v1.Pod
			for i, gpus := range test.holding {
				holders = append(holders, holding(test.nodes[i], gpus)...)
			}
			f := newFixture(t, test.nodes, holders...)
			for range 3 { // the same each time, in whichever order the nodes come
				if got := f.message(test.pod); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			}
		})
	}
}

// What a simulation finds is not said of the cycle's own nodes, but a node that is judged with
// another pod nominated to it says the same as the others.
func TestSimulationsSpeakForThemselves(t *testing.T) {
	node := pairs(1, "n", 80<<30)[0]
	f := newFixture(t, []*v1.Node{node}, holding(node, "ABC")...)
	pod := annotated(newPod("p", 0), anywhere(3))
	state, status := f.fit(pod, "n0")
	nodeInfo, err := f.framework.SnapshotSharedLister().NodeInfos().Get("n0")
	if err != nil {
		t.Fatal(err)
	}
	simulated := func(holders string) *fwk.Status {
		copied := framework.NewNodeInfo(holding(node, holders)...)
		copied.SetNode(nodeInfo.Node())
		return f.framework.RunFilterPlugins(t.Context(), state.Clone(), pod, copied)
	}
	more, less := simulated("AB"), simulated("ABCD")
	for name, test := range map[string]struct {
		status *fwk.Status
		want   string
	}{
		"the cycle":            {status, "have fewer than 3 free GPUs (best: 1 free of 4)"},
		"with fewer pods":      {more, "have fewer than 3 free GPUs (best: 2 free of 4)"},
		"with a nominated one": {less, "have fewer than 3 free GPUs (best: 2 free of 4)"},
	} {
		if got := test.status.Message(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

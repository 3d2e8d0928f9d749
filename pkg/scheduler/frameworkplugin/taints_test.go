// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// taint returns a taint of a GPU.
func taint(gpu, key, value string, effect v1.TaintEffect) deviceinfo.DeviceTaint {
	return deviceinfo.DeviceTaint{Device: "gpu/" + gpu, Key: key, Value: value, Effect: effect}
}

// cordon returns the taint of a cordoned GPU.
func cordon(gpu string) deviceinfo.DeviceTaint {
	return taint(gpu, deviceinfo.CordonKey, "", v1.TaintEffectNoSchedule)
}

func taintsText(taints ...deviceinfo.DeviceTaint) string {
	value, err := deviceinfo.EncodeDeviceTaints(taints)
	if err != nil {
		panic(err)
	}
	return value
}

// tainted returns a node as it is with these taints of its GPUs.
func tainted(node *v1.Node, taints ...deviceinfo.DeviceTaint) *v1.Node {
	return changed(node, func(node *v1.Node) {
		node.Annotations[deviceinfo.DeviceTaintsAnnotation] = taintsText(taints...)
	})
}

// tolerating returns a pod with tolerations of these keys.
func tolerating(pod *v1.Pod, keys ...string) *v1.Pod {
	pod = pod.DeepCopy()
	for _, key := range keys {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists})
	}
	pod.ResourceVersion += strings.Join(keys, "+")
	return pod
}

var taintKeys = []string{deviceinfo.CordonKey, "dedicated", "maintenance"}

// randomTaints returns taints of some of the GPUs A to D.
func randomTaints(random *rand.Rand) string {
	var taints []deviceinfo.DeviceTaint
	for _, gpu := range []string{"A", "B", "C", "D"} {
		for _, key := range taintKeys {
			if random.IntN(4) == 0 {
				effect := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute}[random.IntN(2)]
				taints = append(taints, taint(gpu, key, "", effect))
			}
		}
	}
	return taintsText(taints...)
}

func randomTolerations(random *rand.Rand) (tolerations []v1.Toleration) {
	for _, key := range append(slices.Clone(taintKeys), "") { // which is every key
		if random.IntN(3) == 0 && (key != "" || random.IntN(3) == 0) {
			tolerations = append(tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists})
		}
	}
	return tolerations
}

// A pod fits a node if enough GPUs are free whose taints it tolerates, and gets only those. Pods
// that hold the others keep them.
func TestAPodGetsTheDevicesWhoseTaintsItTolerates(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	fits, refused := 0, 0
	for range 120 {
		node := newNode("n", "A", "B", "C", "D")
		node.Annotations[deviceinfo.DeviceTaintsAnnotation] = randomTaints(random)
		held := []string{"A", "B", "C", "D"}[:random.IntN(3)]
		var holders []*v1.Pod
		for _, gpu := range held {
			holders = append(holders, annotated(assumed(newPod("has-"+gpu, 1), "n"), allocationOf("has-"+gpu, "n",
				gpu)))
		}
		f := newFixture(t, []*v1.Node{node}, holders...)
		list, err := deviceinfo.DecodeDeviceTaints(node.Annotations[deviceinfo.DeviceTaintsAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			pod := newPod(fmt.Sprint("p", i), 1+random.Int64N(3))
			pod.Spec.Tolerations = randomTolerations(random)
			mayHave := map[string]bool{}
			for _, gpu := range []string{"A", "B", "C", "D"} {
				mayHave[gpu] = !slices.Contains(held, gpu)
				for _, of := range deviceinfo.TaintsOf(list, "gpu/"+gpu) {
					mayHave[gpu] = mayHave[gpu] && deviceinfo.Toleration(pod.Spec.Tolerations, of.Taint()) != nil
				}
			}
			free := int64(0)
			for _, may := range mayHave {
				if may {
					free++
				}
			}
			wanted := pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"]
			state, status := f.fit(pod, "n")
			if got, want := status.IsSuccess(), wanted.Value() <= free; got != want {
				t.Fatalf("%d of %d GPUs that it may have, with %s and %v: fits is %v: %v", wanted.Value(), free,
					node.Annotations[deviceinfo.DeviceTaintsAnnotation], pod.Spec.Tolerations, got, status)
			}
			if !status.IsSuccess() {
				refused++
				continue
			}
			fits++
			if status := f.plugin.Reserve(t.Context(), state, pod, "n"); !status.IsSuccess() {
				t.Fatal(status)
			}
			annotation := f.plugin.nodes.Reserved("n", pod.UID)
			for gpu, may := range mayHave {
				if !may && strings.Contains(annotation, `"resource/group/gpu/`+gpu+`/cards"}`) {
					t.Errorf("the pod got %s: %s", gpu, annotation)
				}
			}
			f.plugin.Unreserve(t.Context(), state, pod, "n")
		}
	}
	if fits < 50 || refused < 50 {
		t.Errorf("%d pods fit and %d did not: nothing is tested", fits, refused)
	}
}

func TestAnEventNamesTheTaintsThatKeepThePodAway(t *testing.T) {
	twoGPUs := func(name string, taints ...deviceinfo.DeviceTaint) *v1.Node {
		return tainted(newNode(name, "A", "B"), taints...)
	}
	for name, test := range map[string]struct {
		nodes []*v1.Node
		pod   *v1.Pod
		want  string
	}{
		"one GPU is cordoned": {
			[]*v1.Node{twoGPUs("n", cordon("A"))}, newPod("p", 2),
			"0/1 nodes are available: 1 have 1 GPU with the taint kubedevice.io/unschedulable:NoSchedule, which the " +
				"pod does not tolerate, 1 have fewer than 2 free GPUs (best: 1 free of 1).",
		},
		"nodes with the same taints": {
			[]*v1.Node{twoGPUs("n", cordon("A"), cordon("B")), twoGPUs("m", cordon("B"), cordon("A"))}, newPod("p", 1),
			"0/2 nodes are available: 2 have 2 GPUs with the taint kubedevice.io/unschedulable:NoSchedule, which the " +
				"pod does not tolerate, 2 have no free GPU.",
		},
		"several taints": {
			[]*v1.Node{twoGPUs("n", cordon("A"), taint("B", "dedicated", "x", "NoExecute"))}, newPod("p", 1),
			"0/1 nodes are available: 1 have 2 GPUs with taints that the pod does not tolerate: " +
				"dedicated=x:NoExecute, kubedevice.io/unschedulable:NoSchedule, 1 have no free GPU.",
		},
		"what it tolerates is not named": {
			[]*v1.Node{twoGPUs("n", cordon("A"), taint("B", "dedicated", "x", "NoExecute"))},
			tolerating(newPod("p", 2), "dedicated"),
			"0/1 nodes are available: 1 have 1 GPU with the taint kubedevice.io/unschedulable:NoSchedule, which the " +
				"pod does not tolerate, 1 have fewer than 2 free GPUs (best: 1 free of 1).",
		},
		"the taints are not what stands in the way": {
			[]*v1.Node{twoGPUs("n", cordon("A"))}, newPod("p", 3),
			"0/1 nodes are available: 1 have fewer than 3 free GPUs (best: 1 free of 1).",
		},
		"taints that cannot be read": {
			[]*v1.Node{changed(newNode("n", "A"), func(node *v1.Node) {
				node.Annotations[deviceinfo.DeviceTaintsAnnotation] = `{"version":2}`
			})}, newPod("p", 1),
			"0/1 nodes are available: 1 have 1 GPU with the taint kubedevice.io/unreadable-taints:NoSchedule, which " +
				"the pod does not tolerate, 1 have no free GPU.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.nodes)
			for range 2 { // the same from the cache
				if got := f.message(test.pod); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			}
		})
	}
}

func TestPodsWakeWhenATaintIsGoneOrTolerated(t *testing.T) {
	node := newNode("n", "A")
	cordoned := tainted(node, cordon("A"))
	f := newFixture(t, []*v1.Node{cordoned})
	waiting, tolerant := newPod("waits", 1), tolerating(newPod("tolerates", 1), deviceinfo.CordonKey)
	if _, status := f.fit(waiting, "n"); status.IsSuccess() {
		t.Fatal("a pod fits a cordoned GPU")
	}
	if _, status := f.fit(tolerant, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	other := tainted(cordoned, taint("A", "dedicated", "", v1.TaintEffectNoSchedule))
	for _, change := range []struct {
		what     string
		from, to *v1.Node
		want     int
	}{
		{"a taint in place of another", cordoned, other, 0},
		{"and back", other, tainted(other, cordon("A")), 1},
	} {
		f.updateNode(change.to)
		if woken := f.hints(fwk.Node, []*v1.Pod{waiting, tolerant}, change.from, change.to); woken != change.want {
			t.Errorf("%s: %d pods wake, want %d", change.what, woken, change.want)
		}
		cordoned = change.to
	}
	uncordoned := changed(cordoned, func(node *v1.Node) {
		delete(node.Annotations, deviceinfo.DeviceTaintsAnnotation)
	})
	f.updateNode(uncordoned)
	if woken := f.hints(fwk.Node, []*v1.Pod{waiting, tolerant}, cordoned, uncordoned); woken != 2 {
		t.Errorf("uncordoned: %d pods wake, want both", woken)
	}
	if woken := f.hints(fwk.TargetPod, []*v1.Pod{waiting}, waiting, tolerating(waiting, "x")); woken != 1 {
		t.Error("a pod that tolerates more does not wake")
	}
}

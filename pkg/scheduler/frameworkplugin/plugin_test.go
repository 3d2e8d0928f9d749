// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func TestOnlyPodsThatRequestDevicesConcernThePlugin(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	one := `{"runningcontainer":{"main":{"requests":{"gpu/x/cards":1}}}}`
	other := newPod("other", 1)
	other.Spec.Containers[0].Resources.Requests = v1.ResourceList{
		"example.com/unknown": other.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"]}
	misspelled := newPod("p", 0)
	misspelled.Annotations = map[string]string{"KubeDevice/Deviceinfo": one}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want fwk.Code
	}{
		"an annotation whose key is misspelled": {misspelled, fwk.UnschedulableAndUnresolvable},

		"nothing":                           {newPod("p", 0), fwk.Skip},
		"an extended resource of others":    {other, fwk.Skip},
		"an annotation that requests none":  {annotated(newPod("p", 0), `{}`), fwk.Skip},
		"a GPU by count":                    {newPod("p", 1), fwk.Success},
		"a GPU in the annotation":           {annotated(newPod("p", 0), one), fwk.Success},
		"a forged allocation":               {annotated(newPod("p", 0), allocationOf("p", "n", "A")), fwk.Success},
		"an annotation that cannot be read": {annotated(newPod("p", 0), `{"a":`), fwk.UnschedulableAndUnresolvable},
	} {
		t.Run(name, func(t *testing.T) {
			_, status := f.plugin.PreFilter(t.Context(), framework.NewCycleState(), test.pod, nil)
			if status.Code() != test.want {
				t.Errorf("PreFilter says %v, want %v", status, test.want)
			}
		})
	}
}

// The event comes once as long as the mistakes are the same.
func TestMistakesInAnnotationsAreEvents(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	pod := annotated(newPod("p", 1), `{"policy":{}}`)
	pod.Annotations["KubeDevice/OnDeviceFailure"] = "evict"
	pod.Annotations["KubeDevice/DeviceFailureGracePeriod"] = "90"
	for range 2 {
		if _, status := f.plugin.PreFilter(t.Context(), framework.NewCycleState(), pod, nil); !status.IsSuccess() {
			t.Fatal(status)
		}
	}
	want := "Warning RequestMistake annotation KubeDevice/DeviceInfo: policy: the field is not read, " +
		`annotation KubeDevice/DeviceFailureGracePeriod: "90" is no duration such as 90s, ` +
		`annotation KubeDevice/OnDeviceFailure: "evict" is none of Ignore, Evict and Replace`
	if got := <-f.events.Events; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if len(f.events.Events) > 0 {
		t.Errorf("a second event: %q", <-f.events.Events)
	}
}

// Nodes are compared once for each annotation. The pod is scheduled.
func TestAnExclusionOfADeviceThatNoNodeHasIsAnEvent(t *testing.T) {
	node := newNode("n", "A")
	info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	// One of the devices is unhealthy.
	info.Capacity["vendor.example/nic"] = 2
	info.Capacity["resource/group/numa/0/vendor.example:nic/eth0/device"] = 1
	info.Capacity["resource/group/numa/0-1/vendor.example:nic/eth1/device"] = 1
	info.Allocatable["resource/group/numa/0/vendor.example:nic/eth0/device"] = 1
	if node.Annotations[deviceinfo.Annotation], err = deviceinfo.EncodeNode(info); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, []*v1.Node{node})
	excluding := func(request string) *v1.Pod { return annotated(newPod("p", 1), `{"requests":{"`+request+`":0}}`) }
	const unknown = "numa/A/vendor.example:nic/=eth9/device"
	for _, pod := range []*v1.Pod{
		excluding("numa/A/vendor.example:nic/=eth0/device"), excluding("numa/A/vendor.example:nic/=eth1/device"),
		excluding(unknown), excluding(unknown), excluding("numa/A/vendor.example:nci/=eth0/device"),
	} {
		if _, status := f.plugin.PreFilter(t.Context(), framework.NewCycleState(), pod, nil); !status.IsSuccess() {
			t.Fatal(status)
		}
	}
	for _, want := range []string{
		`requests["` + unknown + `"]: no node has the device eth9 of vendor.example/nic: excluding it has no effect`,
		`requests["numa/A/vendor.example:nci/=eth0/device"]: no node has the device eth0 of vendor.example/nci: ` +
			"excluding it has no effect",
	} {
		want = "Warning RequestMistake annotation KubeDevice/DeviceInfo: " + want
		if got := <-f.events.Events; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	if len(f.events.Events) > 0 {
		t.Errorf("an event more: %q", <-f.events.Events)
	}
}

// A pod goes through the whole cycle. Its binding carries the allocation; the pod itself is not
// changed.
func TestAPodIsBoundWithItsAllocation(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A", "B")})
	pod := annotated(newPod("p", 1), allocationOf("p", "n", "X")) // a forged one, which is overwritten
	pod.Annotations["theirs"] = "kept"
	before := pod.DeepCopy()
	f.add(pod)
	state := f.reserve(pod, "n")

	if scores := f.scores(state, pod, f.nodes()...); scores[0] != 50 {
		t.Errorf("score %d, want 50: half of the node is used then", scores[0])
	}

	if status := f.bind(state, pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	want := []*v1.Binding{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "p", UID: "p",
			Annotations: map[string]string{deviceinfo.Annotation: allocationOf("p", "n", "B")},
		},
		Target: v1.ObjectReference{Kind: "Node", Name: "n"},
	}}
	if diff := cmp.Diff(want, f.bindings()); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the pod has changed (-before +after):\n%s", diff)
	}
}

func TestAPodThatForgesAnAllocationWithoutARequestIsBoundWithoutIt(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	pod := annotated(newPod("p", 0), allocationOf("p", "n", "A"))
	f.add(pod)
	if status := f.bind(f.reserve(pod, "n"), pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	want := map[string]string{deviceinfo.Annotation: `{"podname":"p","nodename":"n","runningcontainer":{"main":{}}}`}
	if diff := cmp.Diff(want, f.bindings()[0].Annotations); diff != "" {
		t.Errorf("annotations of the binding (-want +got):\n%s", diff)
	}
}

func TestAPlainPodIsLeftToTheNextBindPlugin(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	state := f.reserve(newPod("p", 0), "n")
	if status := f.plugin.Bind(t.Context(), state, newPod("p", 0), "n"); !status.IsSkip() {
		t.Errorf("Bind says %v, want it to skip", status)
	}
	if status := f.plugin.PreScore(t.Context(), state, newPod("p", 0), nil); !status.IsSkip() {
		t.Errorf("PreScore says %v, want it to skip", status)
	}
}

func TestANodeWithoutRoomSaysWhy(t *testing.T) {
	held := annotated(assumed(newPod("held", 1), "full"), allocationOf("held", "full", "A"))
	broken := newNode("broken")
	broken.Annotations[deviceinfo.Annotation] = "{"
	f := newFixture(t, []*v1.Node{newNode("full", "A"), newNode("small", "A"), newNode("none"), broken}, held)
	for name, test := range map[string]struct {
		node   string
		count  int64
		code   fwk.Code
		reason string
	}{
		"evicting helps": {"full", 1, fwk.Unschedulable, "have no free GPU"},
		"evicting does not help": {
			"full", 2, fwk.UnschedulableAndUnresolvable, "have fewer than 2 free GPUs (best: 0 free of 1)",
		},
		"there are too few": {
			"small", 2, fwk.UnschedulableAndUnresolvable, "have fewer than 2 free GPUs (best: 1 free of 1)",
		},
		"there are none": {"none", 1, fwk.UnschedulableAndUnresolvable, "have no GPU"},
		"the inventory is unreadable": {
			"broken", 1, fwk.UnschedulableAndUnresolvable, "unreadable inventory: annotation KubeDevice/DeviceInfo: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := f.fit(newPod("p", test.count), test.node)
			if got.Code() != test.code || !strings.HasPrefix(got.Message(), test.reason) {
				t.Errorf("got %v: %s, want %v: %s", got.Code(), got.Message(), test.code, test.reason)
			}
		})
	}
}

// The scheduler's snapshot is ahead of what the plugin has heard of: a pod that seemed to request
// no device is about to get a node whose inventory lists what it requests.
func TestAPodIsNotBoundAsAPlainOneToANodeThatListsItsDevices(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	pod := newPod("p", 1)
	state := framework.NewCycleState() // as PreFilter left it when it skipped the pod
	status := f.framework.RunReservePluginsReserve(t.Context(), state, assumed(pod, "n"), "n")
	if status.Code() != fwk.Error {
		t.Errorf("Reserve says %v, want an error, so that the pod is scheduled again", status)
	}
}

// Pods that were turned away because a plugin failed are tried again after a pause, without any
// event of the cluster.
func TestPodsThatAPluginGaveNoAnswerForAreTriedAgain(t *testing.T) {
	pending, plain := newPod("pending", 1), newPod("plain", 0)
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	for _, pod := range []*v1.Pod{pending, plain,
		annotated(assumed(newPod("bound", 1), "n"), allocationOf("bound", "n", "A"))} {
		f.add(pod)
	}
	await(t, "the informer has the pods", func() bool {
		pods, err := f.framework.SharedInformerFactory().Core().V1().Pods().Lister().Pods("default").List(everything)
		return err == nil && len(pods) == 3
	})
	f.schedulers.panics = true
	for range 2 {
		if _, status := f.fit(pending, "n"); status.Code() != fwk.UnschedulableAndUnresolvable {
			t.Errorf("Filter says %v", status)
		}
	}
	await(t, "the requeuer waits", f.clock.HasWaiters)
	select {
	case <-f.activated:
		t.Error("pods were tried again at once")
	default:
	}
	f.clock.Step(time.Second)
	got := <-f.activated
	if len(got) != 1 || got["pending"] == nil {
		t.Errorf("tried again were %v, want only the one that is pending and requests devices", got)
	}
}

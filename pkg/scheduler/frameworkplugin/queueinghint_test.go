// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// hints asks the plugin about an event for each of these pods that wait, as the scheduling queue
// does, and returns how many of them wake.
func (f *fixture) hints(resource fwk.EventResource, pending []*v1.Pod, from, to any) int {
	f.Helper()
	events, err := f.plugin.EventsToRegister(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	woken := 0
	for _, event := range events {
		if event.Event.Resource != resource {
			continue
		}
		for _, pod := range pending {
			hint, err := event.QueueingHintFn(klog.Background(), pod, from, to)
			if err != nil {
				f.Fatal(err)
			}
			if hint == fwk.Queue {
				woken++
			}
		}
	}
	return woken
}

// delete deletes a pod, and waits until the plugin could know.
func (f *fixture) delete(pod *v1.Pod) {
	f.Helper()
	if err := f.client.CoreV1().Pods(pod.Namespace).Delete(f.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		f.Fatal(err)
	}
	await(f, "the informer has lost the pod", func() bool {
		_, there, err := f.plugin.pods.GetByKey(pod.Namespace + "/" + pod.Name)
		return err == nil && !there
	})
}

// updateNode replaces a node, and waits until the plugin could know.
func (f *fixture) updateNode(node *v1.Node) {
	f.Helper()
	if _, err := f.client.CoreV1().Nodes().Update(f.Context(), node, metav1.UpdateOptions{}); err != nil {
		f.Fatal(err)
	}
	await(f, "the plugin has the node", func() bool {
		known, err := f.plugin.nodeLister.Get(node.Name)
		if err != nil || known.ResourceVersion != node.ResourceVersion {
			return false
		}
		devices, err := f.plugin.nodes.Estimate(node, nil, &v1.Pod{})
		return err == nil && devices != nil
	})
}

// changed returns a node as it is after a change.
func changed(node *v1.Node, change func(*v1.Node)) *v1.Node {
	node = node.DeepCopy()
	node.ResourceVersion += "0"
	change(node)
	return node
}

// 1,000 pods wait for a GPU, 500 of them for two, and only those wake that an event makes room
// for.
func TestPodsWakeForWhatMakesRoomForThemAndForNothingElse(t *testing.T) {
	full, cpus := newNode("full", "A", "B", "C"), newNode("cpus")
	var held []*v1.Pod
	for _, gpu := range []string{"A", "B", "C"} {
		held = append(held, annotated(assumed(newPod("has-"+gpu, 1), "full"), allocationOf("has-"+gpu, "full", gpu)))
	}
	plain := assumed(newPod("plain", 0), "full")
	plugin := &translating{gpus: &gpus{whimsical: true}}
	f := newFixtureOf(t, plugin, []*v1.Node{full, cpus}, append(held, plain)...)
	for count := range int64(2) { // they have been tried
		for _, node := range []string{"full", "cpus"} {
			if _, status := f.fit(newPod("tried", 1+count), node); status.IsSuccess() {
				t.Fatal("a pod fits")
			}
		}
	}
	var pending []*v1.Pod
	for i := range 1000 {
		pending = append(pending, newPod(fmt.Sprint("p", i), int64(1+i%2)))
	}
	wake := func(what string, want int, resource fwk.EventResource, from, to any) {
		t.Helper()
		if got := f.hints(resource, pending, from, to); got != want {
			t.Errorf("%s: %d pods wake, want %d", what, got, want)
		}
	}
	asked := plugin.calls.Load()

	wake("a node's heartbeat", 0, fwk.Node, cpus,
		changed(cpus, func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}} }))
	wake("another annotation of the full node", 0, fwk.Node, full,
		changed(full, func(n *v1.Node) { n.Annotations["theirs"] = "x" }))
	wake("a node without GPUs comes", 0, fwk.Node, nil, cpus)
	wake("the full node comes", 0, fwk.Node, nil, full)
	wake("a plain pod goes", 0, fwk.AssignedPod, plain, nil)
	other := newNode("full", "A", "B", "X")
	other = changed(full, func(n *v1.Node) { n.Annotations = other.Annotations })
	f.updateNode(other)
	wake("a free GPU takes the place of one that is held", 500, fwk.Node, full, other)
	f.delete(held[0])
	wake("a GPU comes free next to the one that is free", 1000, fwk.AssignedPod, held[0], nil)
	wake("a pod goes from a node that is not there", 0, fwk.AssignedPod,
		annotated(assumed(newPod("x", 1), "gone"), allocationOf("x", "gone", "A")), nil)
	if calls := plugin.calls.Load() - asked; calls > 0 {
		t.Errorf("the device scheduler was called %d times", calls)
	}
}

// A pod that waits is woken where a hint cannot know: the device scheduler reads more than the
// node, or gives no answer.
func TestInDoubtPodsWake(t *testing.T) {
	node := newNode("n", "A")
	held := annotated(assumed(newPod("held", 1), "n"), allocationOf("held", "n", "A"))
	for name, plugin := range map[string]*gpus{"whimsical": {whimsical: true}, "panicking": {panics: true}} {
		f := newFixtureOf(t, plugin, []*v1.Node{node}, held)
		if got := f.hints(fwk.AssignedPod, []*v1.Pod{newPod("p", 1)}, held, nil); got != 1 {
			t.Errorf("a pod does not wake with a device scheduler that is %s", name)
		}
	}
}

// A pod goes, and the one that waits fits if another one of lower priority is evicted as well.
func TestAPodWakesForWhatItMayEvict(t *testing.T) {
	holder := func(name string, priority int32, gpu string) *v1.Pod {
		pod := annotated(assumed(newPod(name, 1), "n"), allocationOf(name, "n", gpu))
		pod.Spec.Priority = &priority
		return pod
	}
	going := holder("going", 1000, "B")
	f := newFixtureOf(t, &translating{gpus: &gpus{whimsical: true}}, []*v1.Node{newNode("n", "A", "B", "C")},
		holder("high", 1000, "A"), going, holder("low", 0, "C"))
	waits := func(count int64, priority int32, policy v1.PreemptionPolicy) *v1.Pod {
		pod := newPod(fmt.Sprint("waits-", count, priority, policy), count)
		pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
		return pod
	}
	for _, count := range []int64{2, 3} {
		f.fit(newPod("tried", count), "n")
	}
	f.delete(going)
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want int
	}{
		"two GPUs, of which one is evicted":           {waits(2, 1000, v1.PreemptLowerPriority), 1},
		"three, which no eviction gives it":           {waits(3, 1000, v1.PreemptLowerPriority), 0},
		"a pod that evicts no other":                  {waits(2, 1000, v1.PreemptNever), 0},
		"a pod of the priority of those that hold it": {waits(2, 0, v1.PreemptLowerPriority), 0},
	} {
		if got := f.hints(fwk.AssignedPod, []*v1.Pod{test.pod}, going, nil); got != test.want {
			t.Errorf("%s: %d pods wake, want %d", name, got, test.want)
		}
	}
}

// classes has a DeviceClass for one extended resource.
type classes struct {
	fwk.SharedDRAManager
	resource v1.ResourceName
}

func (c classes) DeviceClassResolver() fwk.DeviceClassResolver { return c }

func (c classes) GetDeviceClass(name v1.ResourceName) *resourceapi.DeviceClass {
	if name != c.resource {
		return nil
	}
	return &resourceapi.DeviceClass{}
}

func TestAPodWakesForANodeThatMayServeItsResourceByADeviceClass(t *testing.T) {
	node := newNode("n", "A")
	f := newFixture(t, []*v1.Node{node})
	pod := newPod("p", 1)
	pod.Spec.Containers[0].Resources.Requests["example.com/fpga"] = apiresource.MustParse("1")
	if got := f.hints(fwk.Node, []*v1.Pod{pod}, nil, node); got != 0 {
		t.Error("it wakes for a node that does not have it")
	}
	f.plugin.dra = classes{resource: "example.com/fpga"}
	if got := f.hints(fwk.Node, []*v1.Pod{pod}, nil, node); got != 1 {
		t.Error("it does not wake")
	}
}

// A pod whose annotation cannot be read waits until it is changed; a node whose inventory cannot be
// read helps no pod.
func TestUnreadableAnnotationsRequeueNoPod(t *testing.T) {
	node, broken := newNode("n", "A"), newNode("broken")
	broken.Annotations[deviceinfo.Annotation] = "{"
	f := newFixture(t, []*v1.Node{node, broken})
	if got := f.hints(fwk.Node, []*v1.Pod{annotated(newPod("p", 1), "{")}, nil, node); got != 0 {
		t.Error("a pod wakes whose annotation cannot be read")
	}
	if got := f.hints(fwk.Node, []*v1.Pod{newPod("p", 1)}, nil, broken); got != 0 {
		t.Error("a pod wakes for a node whose inventory cannot be read")
	}
}

// A user removes a bound pod's allocation: no queueing hint reports that.
func TestPodsAreTriedAgainWhenAnAllocationIsTakenAway(t *testing.T) {
	held := annotated(assumed(newPod("held", 1), "n"), allocationOf("held", "n", "A"))
	pending := newPod("pending", 1)
	f := newFixture(t, []*v1.Node{newNode("n", "A")}, held, pending)
	robbed := held.DeepCopy()
	robbed.Annotations, robbed.ResourceVersion = nil, "8"
	if _, err := f.client.CoreV1().Pods("default").Update(t.Context(), robbed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the requeuer waits", f.clock.HasWaiters)
	f.clock.Step(0)
	if got := <-f.activated; got["pending"] == nil {
		t.Errorf("tried again were %v, want the one that is pending", got)
	}
}

// The owner of a bound pod may change its annotation any number of times.
func TestNoPodIsTriedAgainForAnAnnotationThatGivesNothing(t *testing.T) {
	plain, pending := assumed(newPod("plain", 0), "n"), newPod("pending", 1)
	f := newFixture(t, []*v1.Node{newNode("n", "A")}, plain, pending)
	for i := range 3 {
		f.plugin.afterRewrite(plain, annotated(plain.DeepCopy(), fmt.Sprintf(`{"requests":{"x":%d}}`, i)))
	}
	f.plugin.requeuer.mu.Lock()
	defer f.plugin.requeuer.mu.Unlock()
	if !f.plugin.requeuer.next.IsZero() {
		t.Error("all pods that wait are tried again")
	}
}

// translating is a device scheduler that translates otherwise since a node came.
type translating struct {
	*gpus
	revision atomic.Uint64
}

func (t *translating) Revision() uint64 { return t.revision.Load() }

func TestPodsAreTriedAgainWhenRequestsMeanSomethingElse(t *testing.T) {
	plugin := &translating{gpus: &gpus{whimsical: true}}
	node, pending := newNode("n", "A"), newPod("pending", 2)
	f := newFixtureOf(t, plugin, []*v1.Node{node}, pending)
	plugin.revision.Add(1)
	f.updateNode(changed(node, func(n *v1.Node) { n.Annotations = newNode("n", "A", "B").Annotations }))
	await(t, "the requeuer waits", f.clock.HasWaiters)
	f.clock.Step(0)
	if got := <-f.activated; got["pending"] == nil {
		t.Errorf("tried again were %v, want the one that is pending", got)
	}
}

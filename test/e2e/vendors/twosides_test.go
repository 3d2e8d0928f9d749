// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// gpus is what NVIDIA's plugin serves, at the kubelet of one node and at kubecri of the other.
const gpus corev1.ResourceName = "nvidia.com/gpu"

// NVIDIA's plugin is registered with the kubelet on one node and with kubecri on the other. Pods
// that count GPUs go to both nodes, those that request exact ones to the second. Then the first
// node follows, while a pod still holds a GPU that the kubelet gave it, and gives out the others.
func TestAHalfMigratedClusterServesPodsOnBothSidesAndNoPodFailsWhenTheOtherHalfFollows(t *testing.T) {
	ctx := beginWith(t, 5*timeout)
	namespace := clustertest.Namespace(t, shared.Client)
	theirs, ours := nodes[0], nodes[1]
	move := func(ctx context.Context, directory string) {
		if err := theirs.move(ctx, nvidia, directory); err != nil {
			t.Fatal(err)
		}
	}
	theirs.moveBack(ctx, t)
	t.Cleanup(func() {
		if t.Failed() {
			move(context.WithoutCancel(ctx), kubecriDirectory)
		}
	})
	theirs.awaitGPUs(ctx, t, vendors.GPUs, false)

	var pods []*corev1.Pod
	for i := range 2 * vendors.GPUs {
		pod := clustertest.IdlePod(namespace, fmt.Sprintf("pod-%d", i), limits{gpus: 1})
		if i < 2 {
			requestExactly(pod)
		}
		pods = append(pods, clustertest.CreatePod(ctx, t, shared.Client, pod))
	}
	for i, pod := range pods {
		pods[i] = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready", kube.Ready)
		if i < 2 && pods[i].Spec.NodeName != ours.Name {
			t.Errorf("pod %s requests an exact GPU and is on %s", pod.Name, pods[i].Spec.NodeName)
		}
	}
	expectGPUsOnce(ctx, t, pods)
	late := requestExactly(clustertest.IdlePod(namespace, "late", limits{gpus: 1}))
	late = clustertest.CreatePod(ctx, t, shared.Client, late)
	clustertest.AwaitPod(ctx, t, shared.Client, late, "to find no node", kube.Unschedulable)
	on := func(n *node) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool { return pod.Spec.NodeName == n.Name }
	}
	clustertest.DeletePod(ctx, t, shared.Client, pods[slices.IndexFunc(pods, on(ours))])
	late = clustertest.AwaitPod(ctx, t, shared.Client, late, "to be ready with a GPU that was returned", kube.Ready)
	expectDevices(ctx, t, late)

	holder := pods[slices.IndexFunc(pods, on(theirs))]
	for _, pod := range pods {
		if pod != holder && pod.Spec.NodeName == theirs.Name {
			clustertest.DeletePod(ctx, t, shared.Client, pod)
		}
	}
	held := theirs.visible(ctx, t, holder)
	move(ctx, kubecriDirectory)
	theirs.awaitGPUs(ctx, t, vendors.GPUs, true)
	clustertest.AwaitPod(ctx, t, shared.Client, holder, "to be ready still", kube.Ready)

	for i := range vendors.GPUs - 1 {
		pod := clustertest.On(theirs.Name, clustertest.IdlePod(namespace, fmt.Sprintf("moved-%d", i), limits{gpus: 1}))
		pod = clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, pod),
			"to be ready or to fail", func(pod *corev1.Pod) bool {
				return kube.Ready(pod) || pod.Status.Phase == corev1.PodFailed
			})
		if pod.Status.Phase == corev1.PodFailed {
			t.Fatalf("%s", shared.Client.Describe(ctx, pod))
		}
		if ids := expectDevices(ctx, t, pod); slices.Equal(ids[gpus], held[gpus]) {
			t.Errorf("pod %s got the GPU %q of pod %s", pod.Name, ids[gpus], holder.Name)
		}
	}
}

// Two pods hold GPUs that the kubelet gave them when NVIDIA's plugin moves to kubecri. They keep
// them, over restarts of their containers, of kubecri and of the kubelet, also when that has
// forgotten them; others get the other ones, also when one kubecri has just taken over from
// another; and what one of them held is free when it is gone.
func TestPodsThatHoldGPUsOfTheKubeletKeepThemWhenThePluginMovesToKubecri(t *testing.T) {
	ctx := beginWith(t, 5*timeout)
	namespace := clustertest.Namespace(t, shared.Client)
	n := nodes[0]
	old, held := n.takeOver(ctx, t, namespace, 2)
	allocated := map[string]string{held[0][gpus][0]: "old-0", held[1][gpus][0]: "old-1"}
	for i := range vendors.GPUs - len(old) {
		if i > 0 {
			n.handOver(ctx, t) // the kubelet must admit the next pod at once
		}
		name := fmt.Sprintf("new-%d", i)
		id := expectDevices(ctx, t, n.run(ctx, t, namespace, name))[gpus][0]
		if allocated[id] != "" {
			t.Errorf("pods %s and %s have GPU %s", allocated[id], name, id)
		}
		allocated[id] = name
	}
	late := clustertest.CreatePod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, "late", limits{gpus: 1})))
	clustertest.AwaitPod(ctx, t, shared.Client, late, "to find no node", kube.Unschedulable)
	n.expectHeld(ctx, t, namespace, allocated)

	restart(ctx, t, n.Kubecri)
	awaitExec(ctx, t, old[0])
	old[0] = clustertest.RestartContainer(ctx, t, shared.Client, old[0])
	if diff := cmp.Diff(held[0], n.visible(ctx, t, old[0])); diff != "" {
		t.Errorf("the GPU of a pod (-before +in a new container):\n%s", diff)
	}
	restart(ctx, t, n.Kubelet)
	awaitExec(ctx, t, old[1])
	n.awaitGPUs(ctx, t, vendors.GPUs, true)
	old[1] = clustertest.RestartContainer(ctx, t, shared.Client, old[1])
	if diff := cmp.Diff(held[1], n.visible(ctx, t, old[1])); diff != "" {
		t.Errorf("the GPU of a pod (-before +after a restart of the kubelet, in a new container):\n%s", diff)
	}
	n.expectHeld(ctx, t, namespace, allocated)

	if err := n.forgetDevices(ctx); err != nil {
		t.Fatal(err)
	}
	awaitExec(ctx, t, old[1])
	n.awaitGPUs(ctx, t, vendors.GPUs, true)
	old[1] = clustertest.RestartContainer(ctx, t, shared.Client, old[1])
	if diff := cmp.Diff(held[1], n.visible(ctx, t, old[1])); diff != "" {
		t.Errorf("the GPU of a pod (-before +after the kubelet has forgotten it, in a new container):\n%s", diff)
	}
	n.expectHeld(ctx, t, namespace, allocated)

	clustertest.DeletePod(ctx, t, shared.Client, old[1])
	late = clustertest.AwaitPod(ctx, t, shared.Client, late, "to be ready", kube.Ready)
	if diff := cmp.Diff(held[1], expectDevices(ctx, t, late)); diff != "" {
		t.Errorf("the GPU that was returned (-held before +held now):\n%s", diff)
	}
}

// Two pods hold GPUs that the kubelet gave them, and two others GPUs that the scheduler chose, when
// their node is rebooted, and its plugins come up only when the node is ready. All of them run
// again with the GPUs that they had, a pod that fits nowhere still waits, and what one of them held
// is free when it is gone.
func TestPodsOfANodeWithPlaceholderPluginsKeepTheirGPUsOverAReboot(t *testing.T) {
	ctx := beginWith(t, 5*timeout)
	namespace := clustertest.Namespace(t, shared.Client)
	n := nodes[0]
	pods, held := n.takeOver(ctx, t, namespace, 2)
	allocated := map[string]string{}
	for i := range vendors.GPUs {
		if i >= len(pods) {
			pod := n.run(ctx, t, namespace, fmt.Sprintf("new-%d", i))
			pods, held = append(pods, pod), append(held, expectDevices(ctx, t, pod))
		}
		allocated[held[i][gpus][0]] = pods[i].Name
	}
	late := clustertest.CreatePod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, "late", limits{gpus: 1})))
	clustertest.AwaitPod(ctx, t, shared.Client, late, "to find no node", kube.Unschedulable)

	n.setLate(true)
	t.Cleanup(func() { n.setLate(false) })
	if err := n.reboot(ctx); err != nil {
		t.Fatal(err)
	}
	// The kubelet has admitted the pods when it runs another.
	next := clustertest.IdlePod(namespace, "next", nil)
	next.Spec.NodeName = n.Name
	clustertest.RunPod(ctx, t, shared.Client, next)
	n.setLate(false)

	for i, before := range pods {
		pods[i] = clustertest.AwaitPod(ctx, t, shared.Client, before, "to run in a new container, or to fail",
			func(now *corev1.Pod) bool {
				return now.Status.Phase == corev1.PodFailed || kube.Ready(now) &&
					now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID
			})
		if pods[i].Status.Phase == corev1.PodFailed {
			t.Fatalf("%s", shared.Client.Describe(ctx, pods[i]))
		}
		if diff := cmp.Diff(held[i], n.visible(ctx, t, pods[i])); diff != "" {
			t.Errorf("the GPU of pod %s (-before +after the reboot):\n%s", before.Name, diff)
		}
	}
	n.awaitGPUs(ctx, t, vendors.GPUs, true)
	n.expectHeld(ctx, t, namespace, allocated)
	clustertest.AwaitPod(ctx, t, shared.Client, late, "to find no node still", kube.Unschedulable)
	clustertest.DeletePod(ctx, t, shared.Client, pods[0])
	late = clustertest.AwaitPod(ctx, t, shared.Client, late, "to be ready", kube.Ready)
	if diff := cmp.Diff(held[0], expectDevices(ctx, t, late)); diff != "" {
		t.Errorf("the GPU that was returned (-held before +held now):\n%s", diff)
	}
}

// takeOver has NVIDIA's plugin serve the kubelet, which gives GPUs to so many pods, and then move
// to kubecri, which stands in for it. It returns the pods, and what each of them has.
func (n *node) takeOver(ctx context.Context, t *testing.T, namespace string, count int) ([]*corev1.Pod, []choice) {
	t.Helper()
	offered := int64(len(n.Plugin(nvidia).Devices))
	move := func(ctx context.Context, directory string) {
		if err := n.move(ctx, nvidia, directory); err != nil {
			t.Fatal(err)
		}
	}
	n.moveBack(ctx, t)
	moved := false
	t.Cleanup(func() {
		if !moved {
			move(context.WithoutCancel(ctx), kubecriDirectory)
		}
	})
	n.awaitGPUs(ctx, t, offered, false)
	var pods []*corev1.Pod
	var held []choice
	for i := range count {
		pod := n.run(ctx, t, namespace, fmt.Sprintf("old-%d", i))
		pods, held = append(pods, pod), append(held, n.visible(ctx, t, pod))
	}
	move(ctx, kubecriDirectory)
	moved = true
	n.awaitGPUs(ctx, t, offered, true)
	return pods, held
}

// moveBack moves NVIDIA's plugin from kubecri to the kubelet of the node, of which no pod holds a
// GPU. Where the kubelet knows one plugin, that starts when the placeholder of the previous one has
// left. After the test the kubelet forgets it, or kubecri would register a placeholder for it in
// the next one.
func (n *node) moveBack(ctx context.Context, t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := n.forgetDevices(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	if onePlugin {
		n.setLate(true)
		defer n.setLate(false)
	}
	if err := n.move(ctx, nvidia, vendors.KubeletDirectory); err != nil {
		t.Fatal(err)
	}
	if onePlugin {
		n.awaitOffer(ctx, t, gpus, 0)
	}
}

// handOver has another kubecri take over from the node's own, and that from the other.
func (n *node) handOver(ctx context.Context, t *testing.T) {
	t.Helper()
	other := n.NewKubecri("other-kubecri", kubecri)
	for _, turn := range []struct{ next, before *cluster.Component }{{other, n.Kubecri}, {n.Kubecri, other}} {
		if err := turn.next.Start(); err != nil {
			t.Fatal(err)
		}
		clustertest.Await(ctx, t, turn.before.Name+" to end", func() bool {
			return turn.before.PID() == 0
		})
	}
}

// run runs a pod on the node that requests a GPU.
func (n *node) run(ctx context.Context, t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, name, limits{gpus: 1})))
}

// awaitExec waits until commands can be run in a pod, as after a restart of what is on the way.
func awaitExec(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	clustertest.Await(ctx, t, "a command in pod "+pod.Name, func() bool {
		_, err := shared.Client.Exec(ctx, pod, "main", "true")
		return err == nil
	})
}

// visible is which GPUs the container of a pod can open, which a plugin at the kubelet gave it; of
// GPUs with shares, a share of each.
func (n *node) visible(ctx context.Context, t *testing.T, pod *corev1.Pod) choice {
	t.Helper()
	printed, err := shared.Client.Exec(ctx, pod, "main", n.probe()...)
	if err != nil {
		t.Fatal(err)
	}
	_, visible, _ := strings.Cut(printed, "env NVIDIA_VISIBLE_DEVICES ")
	ids := choice{}
	for _, gpu := range strings.Split(strings.TrimSpace(visible), ",") {
		for _, device := range n.Plugin(nvidia).Devices {
			if device.Envs["NVIDIA_VISIBLE_DEVICES"] == gpu {
				ids[gpus] = append(ids[gpus], device.ID)
				break
			}
		}
	}
	if err := n.checkProbe(ids, printed); err != nil {
		t.Errorf("pod %s on %s: %v", pod.Name, n.Name, err)
	}
	return ids
}

// expectHeld fails the test unless kubecri's PodResources say of the namespace's pods on the node
// that exactly these GPUs are held, by the pods of these names.
func (n *node) expectHeld(ctx context.Context, t *testing.T, namespace string, want map[string]string) {
	t.Helper()
	answer, err := clustertest.NewAgent(t, n.Node, clustertest.KubecriPodResources).List(ctx,
		&podresourcesapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, pod := range answer.GetPodResources() {
		for _, held := range pod.GetContainers()[0].GetDevices() {
			for _, id := range held.GetDeviceIds() {
				if pod.GetNamespace() == namespace {
					got[id] = pod.GetName()
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs by the pods that hold them, by PodResources (-want +got):\n%s", diff)
	}
	printed, err := n.RunKubecri(ctx, "grants")
	if err != nil {
		t.Fatal(err)
	}
	for id, pod := range want {
		if !regexp.MustCompile(regexp.QuoteMeta(pod) + `\s.*` + regexp.QuoteMeta(id)).MatchString(printed) {
			t.Errorf("kubecri grants does not say that pod %s holds %s:\n%s", pod, id, printed)
		}
	}
}

// requestExactly has a pod request a GPU by its place, which only kubecri's nodes have.
func requestExactly(pod *corev1.Pod) *corev1.Pod {
	kube.SetRequests(pod, `"numa/A/nvidia.com:gpu":1`)
	return pod
}

// awaitGPUs waits until so many GPUs are allocatable on the node, and all of them are exact devices
// or the node names none.
func (n *node) awaitGPUs(ctx context.Context, t *testing.T, count int64, exact bool) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, n.Name, fmt.Sprintf("to offer %d GPUs (exact: %t)", count, exact),
		func(node *corev1.Node) bool {
			offered := node.Status.Allocatable[gpus]
			info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
			if err != nil || offered.Value() != count {
				return false
			}
			named, allocatable := 0, int64(0)
			for name := range info.Capacity {
				if d, ok := kubeletdevice.Parse(name); ok && corev1.ResourceName(d.Resource) == gpus {
					named++
					allocatable += info.Allocatable[name]
				}
			}
			return exact && allocatable == count || !exact && named == 0
		})
	if err != nil {
		t.Fatal(err)
	}
}

// expectGPUsOnce fails the test unless each pod can open the GPU that it was allocated, by the
// kubelet or by kubecri, and no GPU is allocated twice.
func expectGPUsOnce(ctx context.Context, t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	holders := map[string]string{}
	for _, pod := range pods {
		n := nodeOf(pod)
		_, annotated := pod.Annotations[deviceinfo.Annotation]
		var ids choice
		if annotated {
			ids = expectDevices(ctx, t, pod)
		} else {
			ids = n.visible(ctx, t, pod)
		}
		if ours := n == nodes[1]; annotated != ours || len(ids[gpus]) != 1 {
			t.Errorf("pod %s on %s has the GPUs %q, and an annotation: %t", pod.Name, n.Name, ids[gpus], annotated)
		}
		for _, id := range ids[gpus] {
			key := n.Name + " " + id
			if holders[key] != "" {
				t.Errorf("the pods %s and %s both have GPU %s of %s", holders[key], pod.Name, id, n.Name)
			}
			holders[key] = pod.Name
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

var waits = flag.Bool("vendors.wait", false, "wait five minutes for a kubelet to forget a plugin that has left")

// gpus is what NVIDIA's plugin serves, at the kubelet of one node and at kubecri of the other.
const gpus corev1.ResourceName = "nvidia.com/gpu"

// NVIDIA's plugin is registered with the kubelet on one node and with kubecri on the other. Pods
// that count GPUs go to both nodes, those that request exact ones to the second. Then the first
// node follows, while a pod still holds a GPU that the kubelet gave it.
func TestAHalfMigratedClusterServesPodsOnBothSidesAndNoPodFailsWhenTheOtherHalfFollows(t *testing.T) {
	ctx := beginWith(t, 5*patience)
	namespace := clustertest.Namespace(t, shared.Client)
	theirs, ours := nodes[0], nodes[1]
	move := func(ctx context.Context, directory string) {
		if err := theirs.move(ctx, nvidia, directory); err != nil {
			t.Fatal(err)
		}
	}
	move(ctx, vendors.KubeletDirectory)
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

	move(ctx, kubecriDirectory)
	theirs.awaitGPUs(ctx, t, 0, false)
	holder := pods[slices.IndexFunc(pods, on(theirs))]
	for _, pod := range pods {
		if pod != holder && pod.Spec.NodeName == theirs.Name {
			clustertest.DeletePod(ctx, t, shared.Client, pod)
		}
	}
	theirs.awaitForgotten(ctx, t)
	awaitReadyz(ctx, t, theirs, "pod "+namespace+"/"+holder.Name+" holds a device of "+string(gpus))
	theirs.awaitGPUs(ctx, t, 0, false)
	clustertest.AwaitPod(ctx, t, shared.Client, holder, "to be ready still", kube.Ready)
	clustertest.DeletePod(ctx, t, shared.Client, holder)
	theirs.awaitGPUs(ctx, t, vendors.GPUs, true)

	for i := range vendors.GPUs {
		pod := clustertest.On(theirs.Name, clustertest.IdlePod(namespace, fmt.Sprintf("moved-%d", i), limits{gpus: 1}))
		pod = clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, pod),
			"to be ready or to fail", func(pod *corev1.Pod) bool {
				return kube.Ready(pod) || pod.Status.Phase == corev1.PodFailed
			})
		if pod.Status.Phase == corev1.PodFailed {
			t.Fatalf("%s", shared.Client.Describe(ctx, pod))
		}
		expectDevices(ctx, t, pod)
	}
}

// requestExactly has a pod request a GPU by its place, which only kubecri's nodes have.
func requestExactly(pod *corev1.Pod) *corev1.Pod {
	kube.SetRequests(pod, `"numa/A/nvidia.com:gpu":1`)
	return pod
}

// awaitGPUs waits until so many GPUs are allocatable on the node, and are exact devices or are not.
func (n *node) awaitGPUs(ctx context.Context, t *testing.T, count int64, exact bool) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, n.Name, fmt.Sprintf("to offer %d GPUs (exact: %t)", count, exact),
		func(node *corev1.Node) bool {
			offered := node.Status.Allocatable[gpus]
			return offered.Value() == count && exact == strings.Contains(node.Annotations[deviceinfo.Annotation],
				"nvidia.com:gpu")
		})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitForgotten waits until the node's kubelet has forgotten NVIDIA's plugin, five minutes after
// that has left. Without -vendors.wait it starts a kubelet that has forgotten it.
func (n *node) awaitForgotten(ctx context.Context, t *testing.T) {
	t.Helper()
	if !*waits {
		if err := n.Kubelet.Kill9(ctx); err != nil {
			t.Fatal(err)
		}
		pods, registered := n.remembered(t).GetData()
		delete(registered, string(gpus))
		content, err := checkpoint.New(pods, registered).MarshalCheckpoint()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.checkpoint(), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := shared.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType,
			[]byte(`{"status":{"capacity":{"nvidia.com/gpu":"0"},"allocatable":{"nvidia.com/gpu":"0"}}}`),
			metav1.PatchOptions{}, "status"); err != nil { // as it says when it forgets
			t.Fatal(err)
		}
		if err := n.Kubelet.Start(); err != nil {
			t.Fatal(err)
		}
		return
	}
	for {
		if _, registered := n.remembered(t).GetData(); registered[string(gpus)] == nil {
			return
		}
		clustertest.Pause(ctx, t, "the kubelet to forget NVIDIA's plugin")
	}
}

// remembered is what the node's kubelet remembers of its device plugins and of what pods hold.
func (n *node) remembered(t *testing.T) checkpoint.DeviceManagerCheckpoint {
	t.Helper()
	content, err := os.ReadFile(n.checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	remembered := &checkpoint.Data{}
	if err := remembered.UnmarshalCheckpoint(content); err != nil {
		t.Fatal(err)
	}
	return remembered
}

// checkpoint is the path of the file with that, on the machine.
func (n *node) checkpoint() string {
	return filepath.Join(n.Var(), strings.TrimPrefix(devicemanager.KubeletCheckpoint, "/var/"))
}

// awaitReadyz waits until kubecri's readiness has a text.
func awaitReadyz(ctx context.Context, t *testing.T, n *node, text string) {
	t.Helper()
	for {
		content, err := n.Get(ctx, "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(content, text) {
			return
		}
		clustertest.Pause(ctx, t, fmt.Sprintf("kubecri of %s to say %q: it says %s", n.Name, text, content))
	}
}

// expectGPUsOnce fails the test unless each pod can open the GPU that it was given, whoever gave
// it, and no GPU is given twice.
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
			printed, err := shared.Client.Exec(ctx, pod, "main", n.probe()...)
			if err != nil {
				t.Fatal(err)
			}
			_, visible, _ := strings.Cut(printed, "env NVIDIA_VISIBLE_DEVICES ")
			ids = choice{gpus: strings.Split(strings.TrimSpace(visible), ",")}
			if err := n.checkProbe(ids, printed); err != nil {
				t.Errorf("pod %s on %s: %v", pod.Name, n.Name, err)
			}
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

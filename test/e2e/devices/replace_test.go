// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// replaceable is a pod with one GPU that gets another one at once when it fails.
func replaceable(namespace, name string) *corev1.Pod {
	pod := gpuPod(namespace, name, 1)
	pod.Annotations = clustertest.OnFailure("Replace")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	return pod
}

func TestAFailedDeviceIsReplacedInThePodThatRuns(t *testing.T) {
	skipUnderNRI(t)
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	node := shared.Nodes[0].Name
	pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, replaceable(namespace, "mover")))
	neighbour := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, replaceable(namespace, "neighbour")))
	others := expectDevices(ctx, t, neighbour, "main", 1)
	began := time.Now()
	broken, repair := fails(ctx, t, pod)

	pod = clustertest.AwaitReplaced(ctx, t, shared.Client, pod)
	t.Logf("another device after %v", time.Since(began).Round(10*time.Millisecond))
	second := expectDevices(ctx, t, pod, "main", 1)[0]
	if second == broken || slices.Contains(others, second) {
		t.Errorf("the container has %s; %s has failed, and the neighbour has %s", second, broken, others)
	}
	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceReplaced")
	if !strings.Contains(text, broken) ||
		!strings.Contains(text, second) {
		t.Errorf("the event says %q, not that %s is replaced by %s", text, broken, second)
	}
	clustertest.AwaitHealth(ctx, t, shared.Client, pod, "True DevicesHealthy")
	clustertest.ExpectUntouched(ctx, t, shared.Client, neighbour)

	// The second one fails, too, and the first one is healthy again.
	makeUnhealthy(t, node, second)
	pod = clustertest.AwaitReplaced(ctx, t, shared.Client, pod)
	if third := expectDevices(ctx, t, pod, "main", 1)[0]; third == second || slices.Contains(others, third) {
		t.Errorf("the container has %s; %s has failed, and the neighbour has %s", third, second, others)
	}
	clustertest.AwaitHealth(ctx, t, shared.Client, pod, "True DevicesHealthy")
	repair()
	after := awaitGPUs(ctx, t, node, perNode)
	if text, there := after.Annotations[deviceinfo.ReplacementsAnnotation]; there {
		t.Errorf("the node still asks: %s", text)
	}
	expectOthersFree(ctx, t, node, namespace, neighbour, pod)
	clustertest.ExpectUntouched(ctx, t, shared.Client, neighbour)
	clustertest.ExpectUntouched(ctx, t, shared.Client, pod)
}

// expectOthersFree checks that pods get all GPUs of the node but those that these pods have, one
// each.
func expectOthersFree(ctx context.Context, t *testing.T, node, namespace string, holders ...*corev1.Pod) {
	t.Helper()
	had := map[string]string{}
	for _, pod := range holders {
		had[inspectRaw(ctx, t, pod, "main").Visible[0]] = pod.Name
	}
	var others []*corev1.Pod
	for i := range perNode - len(holders) {
		others = append(others, clustertest.CreatePod(ctx, t, shared.Client,
			clustertest.On(node, gpuPod(namespace, fmt.Sprintf("other-%d", i), 1))))
	}
	for _, pod := range others {
		pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready", kube.Ready)
		has := expectDevices(ctx, t, pod, "main", 1)[0]
		if whose := had[has]; whose != "" {
			t.Errorf("pod %s has %s, which pod %s has", pod.Name, has, whose)
		}
		had[has] = pod.Name
	}
}

// Somebody who can write the annotations, in spite of the policies, cannot take a replacement back.
func TestAnAllocationFromBeforeAReplacementDoesNotComeBack(t *testing.T) {
	skipUnderNRI(t)
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	node := shared.Nodes[0].Name
	before := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, replaceable(namespace, "mover")))
	first, repair := fails(ctx, t, before)
	pod := clustertest.AwaitReplaced(ctx, t, shared.Client, before)
	second := expectDevices(ctx, t, pod, "main", 1)[0]
	repair()
	awaitGPUs(ctx, t, node, perNode)

	client, err := shared.Client.As(scheduler)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		deviceinfo.Annotation: before.Annotations[deviceinfo.Annotation],
		seal.Annotation:       before.Annotations[seal.Annotation],
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, apitypes.MergePatchType, patch,
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Client.AwaitNode(ctx, node, "to report what the pod holds", func(now *corev1.Node) bool {
		list, err := deviceinfo.DecodeHolders(now.Annotations[deviceinfo.HoldersAnnotation])
		return err == nil && len(list) == 1 && list[0].UID == pod.UID && list[0].Generation == 1
	}); err != nil {
		t.Fatal(err)
	}
	pod = clustertest.RestartContainer(ctx, t, shared.Client, pod)
	if has := inspectRaw(ctx, t, pod, "main").Visible; !slices.Equal(has, []string{second}) {
		t.Errorf("its next container has %q, not %s; the previous one was %s", has, second, first)
	}
	expectOthersFree(ctx, t, node, namespace, pod)
}

// underNRI reports whether kubecri is an NRI plugin, as in "make nri".
func underNRI() bool { return cluster.Mode(os.Getenv(clustertest.ModeVariable)) == cluster.ModeNRI }

// skipUnderNRI skips a test of replacements where TestReplaceMeansEvictWhereNothingCanBeReplaced
// has what comes of them.
func skipUnderNRI(t *testing.T) {
	t.Helper()
	if underNRI() {
		t.Skip("kubecri replaces nothing as an NRI plugin: see docs/deploy/frontends.md")
	}
}

func TestReplaceMeansEvictWhereNothingCanBeReplaced(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	once := replaceable(namespace, "once")
	once.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	once = clustertest.RunPod(ctx, t, shared.Client, clustertest.On(shared.Nodes[0].Name, once))
	fails(ctx, t, once)
	clustertest.AwaitEvent(ctx, t, shared.Client, once, "DeviceFailureEvicted")
	text := clustertest.AwaitEvent(ctx, t, shared.Client, once, "DeviceUnhealthy")
	want := "not started again"
	if underNRI() {
		want = "kubecri is an NRI plugin"
	}
	if !strings.Contains(text, want) {
		t.Errorf("the event says %q", text)
	}
}

// A program that is killed while a device is replaced goes on when it starts again.
func TestADeviceIsReplacedAlthoughProgramsAreKilled(t *testing.T) {
	clustertest.OnlyInFull(t, "others replace devices, and test/e2e/robustness kills programs")
	skipUnderNRI(t)
	node := shared.Nodes[0]
	for name, killed := range map[string]struct {
		program *cluster.Component
		when    func(now *corev1.Node, pod, before *corev1.Pod) bool
	}{
		"the scheduler, as soon as the node asks": {shared.Scheduler,
			func(now *corev1.Node, _, _ *corev1.Pod) bool {
				return now.Annotations[deviceinfo.ReplacementsAnnotation] != ""
			}},
		"kubecri, as soon as the scheduler has answered": {node.Kubecri,
			func(_ *corev1.Node, pod, before *corev1.Pod) bool {
				return pod.Annotations[deviceinfo.Annotation] != before.Annotations[deviceinfo.Annotation]
			}},
		"the kubelet, as soon as the scheduler has answered": {node.Kubelet,
			func(_ *corev1.Node, pod, before *corev1.Pod) bool {
				return pod.Annotations[deviceinfo.Annotation] != before.Annotations[deviceinfo.Annotation]
			}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			namespace := clustertest.Namespace(t, shared.Client)
			pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, replaceable(namespace, "mover")))
			neighbour := clustertest.RunPod(ctx, t, shared.Client,
				clustertest.On(node.Name, replaceable(namespace, "neighbour")))
			broken, repair := fails(ctx, t, pod)
			clustertest.Await(ctx, t, "the time for the kill", func() bool {
				now, err := shared.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				current, err := shared.Client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if killed.when(now, current, pod) ||
					current.Annotations[deviceinfo.Annotation] != pod.Annotations[deviceinfo.Annotation] {
					return true
				}
				return false
			})
			if err := killed.program.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			pod = clustertest.AwaitReplaced(ctx, t, shared.Client, pod)
			if has := expectDevices(ctx, t, pod, "main", 1); slices.Contains(has, broken) {
				t.Errorf("the container has %s, which has failed", broken)
			}
			clustertest.ExpectUntouched(ctx, t, shared.Client, neighbour)
			repair()
			awaitGPUs(ctx, t, node.Name, perNode)
		})
	}
}

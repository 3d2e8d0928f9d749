// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frontends

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

// pod returns a pod for the node whose only container, main, requests a number of GPUs.
func pod(node, namespace, name string, count int64) *corev1.Pod {
	limits := map[corev1.ResourceName]int64{}
	if count > 0 {
		limits[observe.Resource] = count
	}
	return clustertest.On(node, clustertest.IdlePod(namespace, name, limits))
}

// inspect reads the pod's container, and fails the test unless it has exactly the devices that the
// scheduler chose for it, which are that many.
func inspect(ctx context.Context, t *testing.T, pod *corev1.Pod, count int) []string {
	t.Helper()
	seen, err := observer.Observe(ctx, pod, "main")
	if err != nil {
		t.Fatal(err)
	}
	if err := seen.Agree(); err != nil {
		t.Error(err)
	}
	if len(seen.Visible) != count {
		t.Errorf("%s has the devices %q, want %d", seen, seen.Visible, count)
	}
	return seen.Visible
}

func TestADevicePodKeepsItsDevicesOverRestartsWithEitherFrontend(t *testing.T) {
	for _, node := range shared.Nodes {
		t.Run(node.Name, func(t *testing.T) {
			ctx := begin(t)
			namespace := clustertest.Namespace(t, shared.Client)
			first := clustertest.RunPod(ctx, t, shared.Client, pod(node.Name, namespace, "first", 2))
			second := clustertest.RunPod(ctx, t, shared.Client, pod(node.Name, namespace, "second", 2))
			plain := clustertest.RunPod(ctx, t, shared.Client, pod(node.Name, namespace, "plain", 0))
			before := inspect(ctx, t, first, 2)
			inspect(ctx, t, second, 2)
			inspect(ctx, t, plain, 0)

			first = clustertest.RestartContainer(ctx, t, shared.Client, first)
			if diff := cmp.Diff(before, inspect(ctx, t, first, 2)); diff != "" {
				t.Errorf("after the container's restart (-before +after):\n%s", diff)
			}
			if err := node.Kubecri.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			awaitRegistered(ctx, t, node)
			first = clustertest.RestartContainer(ctx, t, shared.Client, first)
			if diff := cmp.Diff(before, inspect(ctx, t, first, 2)); diff != "" {
				t.Errorf("after kubecri's restart (-before +after):\n%s", diff)
			}
		})
	}
}

// The checkpoint comes back from the annotations of the containers, which the runtime's lists do
// not have.
func TestTheCheckpointIsRecoveredFromTheContainers(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client, pod(node.Name, namespace, "holder", 2))
	before := inspect(ctx, t, holder, 2)
	if err := node.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(node.Var(), "lib", "kubedevice", "grants")); err != nil {
		t.Fatal(err)
	}
	if err := node.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}
	clustertest.AwaitMetric(ctx, t, node, "kubecri_grants 1")
	if diff := cmp.Diff(before, inspect(ctx, t, holder, 2)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// The runtime starts containers without asking while kubecri is away. The kubelet starts one that
// requests what no plugin serves, if its pod names the node.
func TestAContainerThatWasStartedPastTheFirewallIsEndedWhenKubecriIsBack(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	plain, forger := pod(node.Name, namespace, "plain", 0), pod(node.Name, namespace, "forger", 0)
	forger.Spec.NodeName = node.Name
	bogus := corev1.ResourceList{"nvidia.com/bogus": resource.MustParse("1")}
	forger.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: bogus, Requests: bogus}
	if err := node.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	pods := []*corev1.Pod{plain, forger}
	for i, p := range pods {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
		pods[i] = clustertest.RunPod(ctx, t, shared.Client, p)
		expectVisible(ctx, t, pods[i], "all")
	}
	if err := node.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		p = clustertest.AwaitPod(ctx, t, shared.Client, p, "to be started again", func(p *corev1.Pod) bool {
			return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0 &&
				p.Status.ContainerStatuses[0].State.Running != nil
		})
		expectVisible(ctx, t, p, "void")
		awaitEnded(ctx, t, p)
	}
}

// The runtime registers no plugin, and creates no container, while it waits for one to stop.
// kubecri waits with it. If it left, what waited would be created without it.
func TestAContainerThatGetsLongToStopLetsNoOtherPastTheFirewall(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	slow, greedy := pod(node.Name, namespace, "slow", 0), pod(node.Name, namespace, "greedy", 0)
	slow.Spec.TerminationGracePeriodSeconds = ptr.To[int64](20) // kubecri gave up after 10 seconds
	slow.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}
	slow = clustertest.RunPod(ctx, t, shared.Client, slow)
	greedy.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
	greedy = clustertest.RunPod(ctx, t, shared.Client, greedy)
	if err := shared.Client.CoreV1().Pods(namespace).Delete(ctx, slow.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.AwaitEvent(ctx, t, shared.Client, slow, "Killing")
	if err := node.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	if err := node.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}
	greedy = clustertest.RestartContainer(ctx, t, shared.Client, greedy)
	expectVisible(ctx, t, greedy, "void")
	awaitRegistered(ctx, t, node)
	clustertest.ExpectUntouched(ctx, t, shared.Client, greedy)
}

// awaitEnded waits for the event that says why the pod's container was ended.
func awaitEnded(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	clustertest.Await(ctx, t, "the pod's event", func() bool {
		events, err := shared.Client.PodEvents(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			if event.Reason == "ContainerEnded" && strings.Contains(event.Message, "NVIDIA_VISIBLE_DEVICES=all") {
				return true
			}
		}
		return false
	})
}

// A runtime that has created no container since it was started does not report what it would
// refuse.
func TestTheRuntimesRequirementIsKnownBeforeAContainerIsCreated(t *testing.T) {
	ctx := begin(t)
	for _, node := range shared.Nodes {
		config := node.ContainerdConfig()
		if err := node.Containerd.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		awaitValidator(ctx, t, node, "on (by "+config+")")
	}
	if err := shared.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}

	// What is configured now is not what runs.
	node := shared.Nodes[0]
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(node.ContainerdConfig(), later, later); err != nil {
		t.Fatal(err)
	}
	if err := node.Kubecri.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	awaitValidator(ctx, t, node, "was changed after the container runtime was started")
	const seen = "on (seen when a container was created)"
	namespace := clustertest.Namespace(t, shared.Client)
	for i := 0; !validatorIs(ctx, node, seen); i++ {
		clustertest.RunPod(ctx, t, shared.Client, pod(node.Name, namespace, fmt.Sprintf("plain-%d", i), 0))
	}
}

// awaitValidator waits until kubecri says that of the runtime's default validator.
func awaitValidator(ctx context.Context, t *testing.T, node *cluster.Node, says string) {
	t.Helper()
	clustertest.Await(ctx, t, "kubecri on "+node.Name+" to say "+says, func() bool {
		return validatorIs(ctx, node, says)
	})
}

// validatorIs reports whether kubecri says that of the runtime's default validator.
func validatorIs(ctx context.Context, node *cluster.Node, says string) bool {
	ready, err := node.Get(ctx, "/readyz")
	return err == nil && strings.Contains(ready, "[+]nri ok; default validator: ") && strings.Contains(ready, says)
}

// awaitRegistered waits until the node's runtime has registered kubecri with NRI: before that it
// would not be asked on the first node.
func awaitRegistered(ctx context.Context, t *testing.T, node *cluster.Node) {
	t.Helper()
	clustertest.Await(ctx, t, "kubecri is registered with NRI on "+node.Name, func() bool {
		ready, err := node.Get(ctx, "/readyz")
		return err == nil && strings.Contains(ready, "[+]nri ok")
	})
}

// expectVisible fails the test unless the pod's container was started with that value.
func expectVisible(ctx context.Context, t *testing.T, pod *corev1.Pod, want string) {
	t.Helper()
	got, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
	if err != nil || strings.TrimSpace(got) != want {
		t.Errorf("the container is started with NVIDIA_VISIBLE_DEVICES=%s, want %s (%v)", got, want, err)
	}
}

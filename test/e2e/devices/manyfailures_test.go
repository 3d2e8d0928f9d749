// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var failures = flag.Int("failures", 4, "how many devices fail in TestManyDevicesFail, one after another")

// outcomes are what may be wanted of a pod whose device fails, and how it is known that it was
// done.
var outcomes = []struct {
	name, policy string
	replicated   bool // by a ReplicaSet, which makes the pod again
	budget       bool // forbids that the pod is evicted
	done         func(ctx context.Context, t *testing.T, pod *corev1.Pod, broken string)
}{
	{name: "Replace", policy: "Replace", done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, broken string) {
		pod = awaitReplaced(ctx, t, pod)
		if has := expectDevices(ctx, t, pod, "main", 1); slices.Contains(has, broken) {
			t.Errorf("the container has %s, which has failed", broken)
		}
	}},
	{name: "Ignore", policy: "Ignore", done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, _ string) {
		awaitCondition(ctx, t, pod, "False Simulated")
		expectUntouched(ctx, t, pod)
	}},
	{name: "Evict", policy: "Evict", replicated: true,
		done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, broken string) {
			moved := awaitReplica(ctx, t, pod.Namespace, pod.Labels["app"], pod.UID)
			has := expectDevices(ctx, t, moved, "main", 1)
			if moved.Spec.NodeName == pod.Spec.NodeName && slices.Contains(has, broken) {
				t.Errorf("the next pod has %s, which has failed", broken)
			}
		}},
	{name: "Evict within a budget", policy: "Evict", replicated: true, budget: true,
		done: func(ctx context.Context, t *testing.T, pod *corev1.Pod, _ string) {
			awaitReason(ctx, t, pod, "DeviceFailureBlocked")
			expectUntouched(ctx, t, pod)
		}},
}

// In every second failure a program is killed: the scheduler, kubecri or the kubelet.
func TestManyDevicesFail(t *testing.T) {
	namespace := clustertest.Namespace(t, shared.Client)
	var neighbours []*corev1.Pod
	for i, node := range shared.Nodes {
		neighbours = append(neighbours, clustertest.RunPod(begin(t), t, shared.Client,
			clustertest.On(node.Name, replaceable(namespace, fmt.Sprintf("neighbour-%d", i)))))
	}
	checked := watchForDoubles(t.Context(), namespace)
	var replaced []time.Duration
	for i := range *failures {
		outcome := outcomes[i%len(outcomes)]
		name, kill := fmt.Sprintf("%d %s", i, outcome.name), (*cluster.Component)(nil)
		// The outcomes are four: each of them meets each program, and none, in turn.
		if turn := i/len(outcomes) + i; turn%2 == 1 {
			node := shared.Nodes[0]
			kill = []*cluster.Component{shared.Scheduler, node.Kubecri, node.Kubelet}[i/2%3]
			name += " killing " + kill.Name
		}
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			annotations := map[string]string{
				deviceinfo.OnDeviceFailureAnnotation:          outcome.policy,
				deviceinfo.DeviceFailureGracePeriodAnnotation: "0s",
			}
			app := fmt.Sprintf("pod-%d", i)
			if outcome.budget {
				protect(ctx, t, namespace, app)
			}
			var pod *corev1.Pod
			if outcome.replicated {
				pod = replicas(ctx, t, namespace, app, annotations)
			} else {
				pod = replaceable(namespace, app)
				pod.Annotations = annotations
				pod = clustertest.RunPod(ctx, t, shared.Client, clustertest.On(shared.Nodes[0].Name, pod))
			}
			if outcome.budget {
				awaitProtected(ctx, t, namespace, app)
			}
			began := time.Now()
			broken, mend := fails(ctx, t, pod)
			if kill != nil {
				if err := kill.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
			outcome.done(ctx, t, pod, broken)
			if outcome.policy == "Replace" && kill == nil {
				replaced = append(replaced, time.Since(began))
			}
			for _, neighbour := range neighbours {
				expectUntouched(ctx, t, neighbour)
			}
			mend()
			awaitGPUs(ctx, t, pod.Spec.NodeName, perNode)
			if !outcome.replicated { // a replica goes with its set
				clustertest.DeletePod(ctx, t, shared.Client, pod)
			}
		})
	}
	if err := checked(); err != nil {
		t.Error(err)
	}
	if len(replaced) > 0 {
		slices.Sort(replaced)
		t.Logf("with another device and ready, without a kill: half of %d after %v, all after %v", len(replaced),
			replaced[len(replaced)/2].Round(10*time.Millisecond), slices.Max(replaced).Round(10*time.Millisecond))
	}
}

// protect makes a budget that lets none of the pods of an app be evicted.
func protect(ctx context.Context, t *testing.T, namespace, app string) {
	t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	budgets := shared.Client.PolicyV1().PodDisruptionBudgets(namespace)
	if _, err := budgets.Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitProtected waits until the budget counts the app's pod.
func awaitProtected(ctx context.Context, t *testing.T, namespace, app string) {
	t.Helper()
	for {
		now, err := shared.Client.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if now.Status.CurrentHealthy == 1 && now.Status.ObservedGeneration == now.Generation {
			return
		}
		clustertest.Pause(ctx, t, "the budget to count the pod")
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// A kubelet that is killed as it starts a container takes the start along, whichever runtime it
// calls: that container fails, the pod gets another.
func TestAKubeletThatIsKilledUnderLoadLosesNoPod(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		namespace := clustertest.Namespace(t, shared.Client)
		steady := clustertest.RunPod(ctx, t, shared.Client, podIn(namespace, node, "steady", clustertest.Idle...))
		var jobs []*corev1.Pod
		for i := range 8 {
			job := podIn(namespace, node, fmt.Sprintf("job-%d", i), "sh", "-c", "echo done; sleep 1")
			job.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			jobs = append(jobs, clustertest.CreatePod(ctx, t, shared.Client, job))
			if i%4 == 3 {
				clustertest.AwaitPod(ctx, t, shared.Client, jobs[i-2], "to be with the kubelet",
					func(pod *corev1.Pod) bool { return pod.Status.StartTime != nil })
				if err := node.Kubelet.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, job := range jobs {
			job = clustertest.AwaitPod(ctx, t, shared.Client, job, "to succeed", kube.Succeeded)
			if logs := kubectl(ctx, t, job, nil, "logs", job.Name); logs.Stdout != "done\n" {
				t.Errorf("pod %s says %q", job.Name, logs.Stdout)
			}
		}
		expectSameContainer(t, steady, clustertest.AwaitPod(ctx, t, shared.Client, steady, "to be ready still",
			kube.Ready))
	})
}

func TestWhileTheRuntimeIsAwayTheNodeSaysSoAndContainersGoOn(t *testing.T) {
	compare(t, func(ctx context.Context, t *testing.T, node *cluster.Node) (seen struct {
		Reason string
		Code   codes.Code
	}) {
		namespace := clustertest.Namespace(t, shared.Client)
		steady := clustertest.RunPod(ctx, t, shared.Client, podIn(namespace, node, "steady", "nc", "-ll", "-p", "7",
			"-e", "cat"))

		if err := node.Containerd.Kill9(ctx); err != nil {
			t.Fatal(err)
		}
		_, err := shared.Client.AwaitNode(ctx, node.Name, "not to be ready", func(n *corev1.Node) bool {
			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady &&
					strings.Contains(condition.Message, "container runtime is down") {
					seen.Reason = condition.Reason
				}
			}
			return statusOf(n, corev1.NodeReady) == corev1.ConditionFalse && seen.Reason != ""
		})
		if err != nil {
			t.Error(err)
		}
		if seen.Code = queryRuntime(ctx, t, node); seen.Code != codes.Unavailable {
			t.Errorf("the kubelet is answered %v, want %v", seen.Code, codes.Unavailable)
		}
		expectEcho(ctx, t, node, steady)
		if err := node.Containerd.Start(); err != nil {
			t.Fatal(err)
		}

		if _, err := shared.Client.AwaitNode(ctx, node.Name, "to be ready again", func(n *corev1.Node) bool {
			return statusOf(n, corev1.NodeReady) == corev1.ConditionTrue && len(n.Spec.Taints) == 0
		}); err != nil {
			t.Fatal(err)
		}
		clustertest.RunPod(ctx, t, shared.Client, podIn(namespace, node, "next", clustertest.Idle...))
		inside(ctx, t, steady, "true")
		expectEcho(ctx, t, node, steady)
		expectSameContainer(t, steady, clustertest.AwaitPod(ctx, t, shared.Client, steady, "to be ready still",
			kube.Ready))
		return seen
	})
}

// queryRuntime requests the container runtime's version, by the socket that the kubelet uses, and
// returns the status of the answer.
func queryRuntime(ctx context.Context, t *testing.T, node *cluster.Node) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+node.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return node.Sandbox().Dial(ctx,
				"unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	return status.Code(err)
}

// expectEcho speaks with a pod over the network, from its node.
func expectEcho(ctx context.Context, t *testing.T, node *cluster.Node, pod *corev1.Pod) {
	t.Helper()
	conn, err := node.Sandbox().Dial(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "7"))
	if err != nil {
		t.Errorf("pod %s does not answer: %v", pod.Name, err)
		return
	}
	sent := random(t, 1000)
	if got, err := echo(ctx, conn, sent); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("pod %s sends back %d bytes, not those that it was sent: %v", pod.Name, len(got), err)
	}
}

// eventMetric is how the kubelet counts the container events that the runtime has sent it.
var eventMetric = regexp.MustCompile(`(?m)^kubelet_evented_pleg_connection_latency_seconds_count [1-9]`)

func TestContainerEventsReachTheKubelet(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		withSettings(ctx, t, node, "featureGates: {EventedPLEG: true}", func() {
			pod := newPod(t, node, "true")
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, pod), "to succeed",
				kube.Succeeded)
			if err := await.Success(ctx, "the kubelet to receive an event", func(ctx context.Context) error {
				metrics, err := shared.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node.Name+"/proxy/metrics")
				if err == nil && !eventMetric.MatchString(metrics) {
					err = fmt.Errorf("its metrics have no %s", eventMetric)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		})
	})
}

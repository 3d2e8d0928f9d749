// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	corev1 "k8s.io/api/core/v1"
)

// webServer returns a pod that serves one page and stays on a node.
func webServer(name, namespace, node string) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox, "sh", "-c",
		"mkdir /www && hostname > /www/index.html && echo serving && exec httpd -f -p 8080 -h /www")
	pod.Namespace = namespace
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"wget", "-qO-", "http://127.0.0.1:8080"}},
		},
	}
	return clustertest.On(node, pod)
}

func TestPodsRunOnEveryNodeAndReachEachOther(t *testing.T) {
	ctx := testContext(t)
	namespace := clustertest.Namespace(t, shared.Client)
	var pods []*corev1.Pod
	for _, node := range shared.Nodes {
		pod := clustertest.RunPod(ctx, t, shared.Client, webServer("on-"+node.Name, namespace, node.Name))
		if pod.Spec.NodeName != node.Name {
			t.Errorf("pod %s is on %s, want %s", pod.Name, pod.Spec.NodeName, node.Name)
		}
		pods = append(pods, pod)
	}
	for _, from := range pods {
		for _, to := range pods {
			page, err := shared.Client.Exec(ctx, from, "main", "wget", "-qO-", "http://"+to.Status.PodIP+":8080")
			if err != nil || strings.TrimSpace(page) != to.Name {
				t.Errorf("pod %s asks pod %s: %q, %v", from.Name, to.Name, page, err)
			}
		}
		if _, err := shared.Client.Exec(ctx, from, "main", "sh", "-c", "nc -w 5 10.96.0.1 443 </dev/null"); err != nil {
			t.Errorf("pod %s cannot reach the API server by its service: %v", from.Name, err)
		}
	}
}

func TestLogsExecAndPortForwardGoThroughTheNode(t *testing.T) {
	ctx := testContext(t)
	pod := clustertest.RunPod(ctx, t, shared.Client, webServer("web", clustertest.Namespace(t, shared.Client),
		shared.Nodes[0].Name))

	logs, err := shared.Client.Logs(ctx, pod, "main")
	if err != nil || logs != "serving\n" {
		t.Errorf("logs: %q, %v", logs, err)
	}
	out, err := shared.Client.Exec(ctx, pod, "main", "hostname")
	if err != nil || strings.TrimSpace(out) != pod.Name {
		t.Errorf("exec: %q, %v", out, err)
	}
	if _, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "echo broken >&2; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "broken") {
		t.Errorf("exec of a command that fails: %v, want an error with what it said", err)
	}
	address, err := shared.Client.Forward(ctx, pod, 8080)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || strings.TrimSpace(string(page)) != pod.Name {
		t.Errorf("port-forward: %q, %v", page, err)
	}
}

func TestAPodThatCannotStartIsReportedWithItsReason(t *testing.T) {
	ctx := testContext(t)
	pod := kube.NewPod("broken", image.Busybox, "/no/such/program")
	pod.Namespace = clustertest.Namespace(t, shared.Client)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
	pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to fail",
		func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if description := shared.Client.Describe(ctx, pod); !strings.Contains(description, "/no/such/program") {
		t.Errorf("the description doesn't name the program that is missing:\n%s", description)
	}
}

func TestEachNodeOfACleanClusterIsReady(t *testing.T) {
	ctx := testContext(t)
	for _, node := range shared.Nodes {
		clustertest.AwaitSuccess(ctx, t, "kubecri on "+node.Name+" to be ready", func() error {
			said, err := node.Get(ctx, "/readyz")
			if err == nil && strings.Contains(said, "[-]") {
				err = errors.New(said)
			}
			return err
		})
	}
}

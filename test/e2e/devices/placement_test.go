// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// apiPort is where the scheduler answers questions.
const apiPort = "10262"

// query runs a command that queries the scheduler, on a node: the scheduler runs in no pod, and the
// machine does not reach it. It decodes what the command prints, at any exit status.
func (k kubectlDevice) query(into any, args ...string) {
	k.t.Helper()
	api, err := clientcmd.BuildConfigFromFlags("", shared.SchedulerKubeconfig())
	if err != nil {
		k.t.Fatal(err)
	}
	address, err := url.Parse(api.Host)
	if err != nil {
		k.t.Fatal(err)
	}
	stdout, err := shared.Nodes[0].Run(k.ctx, filepath.Join(k.dir, "kubectl-device"), append(args, "--output=json",
		"--kubeconfig="+shared.Kubeconfig(), "--server="+api.Host,
		"--scheduler=https://"+address.Hostname()+":"+apiPort)...)
	if stdout == "" {
		k.t.Fatalf("kubectl device %q: %v", args, err)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		k.t.Fatalf("kubectl device %q: %v:\n%s", args, err, stdout)
	}
}

// placed returns the node and the devices of an answer about one pod.
func placed(t *testing.T, answer schedulerapi.Placements) (node string, devices map[string]int64) {
	t.Helper()
	if !answer.Fits || len(answer.Pods) != 1 || len(answer.Pods[0].Containers) != 1 {
		t.Fatalf("it would not be placed: %+v, %+v", answer, answer.Why)
	}
	devices = map[string]int64{}
	for _, device := range answer.Pods[0].Containers[0].Devices {
		devices[device.Path+"/"+device.Resource] += device.Quantity
	}
	return answer.Pods[0].Node, devices
}

// expectPlaced waits until a pod runs, and compares where it is with what the scheduler answered.
func (k kubectlDevice) expectPlaced(pod *corev1.Pod, node string, devices map[string]int64) {
	k.t.Helper()
	pod = clustertest.AwaitPod(k.ctx, k.t, shared.Client, pod, "to be ready", kube.Ready)
	if pod.Spec.NodeName != node {
		k.t.Errorf("%s is on %s, the answer was %s", pod.Name, pod.Spec.NodeName, node)
	}
	if diff := cmp.Diff(devices, allocated(k.t, pod)); diff != "" {
		k.t.Errorf("devices of %s (-answer +allocation):\n%s", pod.Name, diff)
	}
}

// within lets the scheduler take its time to search on a busy machine.
const within = "--within=30s"

func TestAWaitingPodRunsAfterTheChangeThatTheSchedulerNames(t *testing.T) {
	ctx := begin(t)
	k := newKubectlDevice(ctx, t)
	namespace := clustertest.Namespace(t, shared.Client)
	clustertest.RunPod(ctx, t, shared.Client, clustertest.On("node-1", gpuPod(namespace, "whole", perNode)))
	most := clustertest.RunPod(ctx, t, shared.Client, clustertest.On("node-2", gpuPod(namespace, "most", perNode-3)))
	some := clustertest.RunPod(ctx, t, shared.Client, clustertest.On("node-2", gpuPod(namespace, "some", 2)))
	waiting := clustertest.CreatePod(ctx, t, shared.Client, gpuPod(namespace, "waiting", 3))
	waiting = clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to wait with a reason", kube.Unschedulable)

	var why schedulerapi.Why
	k.query(&why, "why", "waiting", "--namespace="+namespace, within)
	var message string
	for _, condition := range waiting.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			message = condition.Message
		}
	}
	if len(why.Fits) > 0 || len(why.Reasons) == 0 || why.Smallest == nil || why.Smallest.End == nil {
		t.Fatalf("got %+v, want reasons and a pod to end", why)
	}
	for _, reason := range why.Reasons {
		if !strings.Contains(message, reason.Text) {
			t.Errorf("the reason is %q, the pod's condition says %q", reason.Text, message)
		}
	}
	ended := why.Smallest.End.Pods
	if len(ended) != 1 || ended[0].Namespace != namespace {
		t.Fatalf("got %+v, want one pod to end", ended)
	}

	var answer schedulerapi.Placements
	k.query(&answer, "whatif", "waiting", "--namespace="+namespace, within, "--without=pod/"+ended[0].Name)
	node, devices := placed(t, answer)
	pod, err := shared.Client.CoreV1().Pods(namespace).Get(ctx, ended[0].Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clustertest.DeletePod(ctx, t, shared.Client, pod)
	k.expectPlaced(waiting, node, devices)

	// Where a pod goes that there is not yet, on what is left.
	for _, pod := range []*corev1.Pod{most, some} {
		if pod.Name != ended[0].Name {
			clustertest.DeletePod(ctx, t, shared.Client, pod)
		}
	}
	next := gpuPod(namespace, "next", 2)
	next.APIVersion, next.Kind = "v1", "Pod"
	next = clustertest.On("node-2", next)
	text, err := yaml.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(k.dir, "next.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	k.query(&answer, "fit", "--filename="+file, within)
	node, devices = placed(t, answer)
	k.expectPlaced(clustertest.CreatePod(ctx, t, shared.Client, next), node, devices)
}

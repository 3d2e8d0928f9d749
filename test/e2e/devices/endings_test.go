// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

func TestADeviceOfAPodDeletedByForceIsGivenOnWhenItsContainerHasEnded(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0].Name
	namespace := clustertest.Namespace(t, shared.Client)
	stubborn := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "stubborn", perNode)))
	next := clustertest.CreatePod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "next", 1)))
	clustertest.AwaitPod(ctx, t, shared.Client, next, "to be found unschedulable", kube.Unschedulable)

	letEnd := holdUp(ctx, t, containersOf(ctx, t, "stubborn"))
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := shared.Client.CoreV1().Pods(namespace).Delete(ctx, stubborn.Name, now); err != nil {
		t.Fatal(err)
	}

	clustertest.AwaitPod(ctx, t, shared.Client, next, "to be scheduled at once", kube.Scheduled)
	awaitRefusalEvent(ctx, t, next, namespace+"/stubborn") // whose container lives
	letEnd()
	next = clustertest.AwaitPod(ctx, t, shared.Client, next, "to be ready in the end", kube.Ready)
	expectDevices(ctx, t, next, "main", 1)
	if held := containersOf(ctx, t, "stubborn"); held != "" {
		t.Errorf("the next pod runs, and so does container %s", held)
	}
}

// holdUp keeps a container of the first node from ending, as one does that waits for a disk: the
// shim, its parent, which would have to kill it, is stopped until letEnd, or until the test is
// over.
func holdUp(ctx context.Context, t *testing.T, container string) (letEnd func()) {
	t.Helper()
	signal := func(ctx context.Context, name, process string) {
		if _, err := shared.Nodes[0].Run(ctx, "/bin/sh", "-c", "kill -"+name+" "+process); err != nil {
			t.Fatal(err)
		}
	}
	pid, err := shared.Nodes[0].Run(ctx, "crictl", "inspect", "--output=go-template",
		"--template={{.info.pid}}", container)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := shared.Nodes[0].Run(ctx, "/bin/cat", "/proc/"+strings.TrimSpace(pid)+"/stat")
	if err != nil {
		t.Fatal(err)
	}
	// The fields after the name, which is in parentheses: state, parent.
	shim := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])[1]
	signal(ctx, "STOP", shim)
	letEnd = sync.OnceFunc(func() { signal(context.WithoutCancel(ctx), "CONT", shim) })
	t.Cleanup(letEnd)
	return letEnd
}

// containersOf returns the IDs of the containers of a pod that run on the first node.
func containersOf(ctx context.Context, t *testing.T, pod string) string {
	t.Helper()
	ids, err := shared.Nodes[0].Run(ctx, "crictl", "ps", "--quiet", "--label=io.kubernetes.pod.name="+pod)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(ids)
}

func TestAfterAPowerCutPodsHaveTheSameDevicesAgain(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[1]
	namespace := clustertest.Namespace(t, shared.Client)
	before := map[string]*corev1.Pod{}
	devices := map[string][]string{}
	for name, count := range map[string]int64{"one": 1, "two": 2, "four": 4} {
		before[name] = clustertest.RunPod(ctx, t, shared.Client,
			clustertest.On(node.Name, gpuPod(namespace, name, count)))
		devices[name] = expectDevices(ctx, t, before[name], "main", int(count))
	}

	if err := node.Reboot(ctx); err != nil {
		t.Fatal(err)
	}

	for name, pod := range before {
		after := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to run in a new container",
			func(now *corev1.Pod) bool {
				return kube.Ready(now) &&
					now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID
			})
		if diff := cmp.Diff(devices[name], inspect(ctx, t, after, "main").Visible); diff != "" {
			t.Errorf("devices of pod %s (-before +after the power cut):\n%s", name, diff)
		}
	}
	if err := shared.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

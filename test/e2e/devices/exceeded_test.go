// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// usageArgs have kubecri read every second what containers use, and act after two.
var usageArgs = []string{
	"--device-usage-interval=1s", "--share-exceeded-grace-period=2s", "--context-memory=*=512Mi",
}

// sharing returns a pod with 20 GiB of a GPU of a node.
func sharing(namespace, name, node string, annotations map[string]string) *corev1.Pod {
	pod := gpuPod(namespace, name, 0)
	pod.Annotations = annotations
	kube.SetRequests(pod, `"gpu/a/memory":21474836480`)
	return clustertest.On(node, pod)
}

// plays returns the line of the inventory by which a container of a pod uses so much of its GPU.
func plays(t *testing.T, pod *corev1.Pod, memory string) string {
	t.Helper()
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	info, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	gpu := ""
	for _, from := range info.RunningContainers["main"].AllocateFrom {
		gpu = filepath.Base(filepath.Dir(strings.TrimPrefix(string(from), types.DeviceGroupPrefix)))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), id) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil {
			t.Fatal(err)
		}
		// The first ID is that in this process's namespace, the second that in the node's.
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if of := strings.Fields(ids); len(of) > 1 {
			return fmt.Sprintf("- {gpu: %s, pid: %s, memory: %s}\n", gpu, of[1], memory)
		}
	}
	t.Fatalf("pod %s has no process in /proc", pod.Name)
	return ""
}

func TestAContainerThatUsesMoreThanItsShareIsEndedAndItsNeighbourIsNot(t *testing.T) {
	ctx := begin(t)
	namespace, node := clustertest.Namespace(t, shared.Client), shared.Nodes[0].Name
	greedy := clustertest.CreatePod(ctx, t, shared.Client, sharing(namespace, "greedy", node, map[string]string{
		deviceinfo.OnShareExceededAnnotation: "End", deviceinfo.LeastEnforcementAnnotation: "policed",
	}))
	waiting := clustertest.AwaitPod(ctx, t, shared.Client, greedy, "to wait with a reason", kube.Unschedulable)
	if text := fmt.Sprint(waiting.Status.Conditions); !strings.Contains(text, "are counted at most, and the pod") {
		t.Errorf("without a reading of use, the pod waits with %s", text)
	}

	setInventory(t, node, "processes: []\n")
	t.Cleanup(func() { restoreInventory(t, node) })
	greedy = clustertest.AwaitPod(ctx, t, shared.Client, greedy, "to run", kube.Ready)
	if text := clustertest.AwaitEvent(ctx, t, shared.Client, greedy, "DeviceShared"); !strings.Contains(text,
		"20 GiB of memory") || !strings.Contains(text, "(policed)") {
		t.Errorf("the event says %q", text)
	}
	neighbour := clustertest.RunPod(ctx, t, shared.Client, sharing(namespace, "neighbour", node, map[string]string{
		deviceinfo.OnShareExceededAnnotation: "End",
	}))

	setInventory(t, node, "processes:\n"+plays(t, greedy, "30Gi")+plays(t, neighbour, "20992Mi"))
	text := clustertest.AwaitEvent(ctx, t, shared.Client, greedy, "ShareExceeded")
	if !strings.Contains(text, `container "main" uses 30 GiB of the memory`) ||
		!strings.Contains(text, "9.5 GiB more than its share of 20 GiB") {
		t.Errorf("the event says %q", text)
	}
	clustertest.AwaitEvent(ctx, t, shared.Client, greedy, "ShareExceededEnded")
	clustertest.AwaitPod(ctx, t, shared.Client, greedy, "to run again", func(now *corev1.Pod) bool {
		return kube.Ready(now) && now.Status.ContainerStatuses[0].RestartCount == 1
	})
	clustertest.ExpectUntouched(ctx, t, shared.Client, neighbour)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/audit"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// xids are critical errors that are faults of the GPU: of its memory twice, of the bus, and of its
// firmware.
var xids = []int{48, 79, 95, 119}

// fault is something that happens to a GPU.
type fault struct {
	name string
	xid  int // 0 where the GPU falls off the bus
}

// faultOf returns the fault of a number: XIDs and losses take turns.
func faultOf(number int) fault {
	if number%2 == 1 {
		return fault{name: "lost"}
	}
	xid := xids[number/2%len(xids)]
	return fault{name: fmt.Sprint("XID ", xid), xid: xid}
}

// conditions are what is said of a pod whose GPU has the fault. Of a GPU that is off the bus, a
// kubecri that was started since has never heard.
func (f fault) conditions() []string {
	if f.xid == 0 {
		return []string{"False Lost", "False Gone"}
	}
	return []string{fmt.Sprint("False Xid", f.xid)}
}

// strike makes the only GPU of a pod's only container fail. repair resets it, and waits until the
// node offers it again.
func (f fault) strike(ctx context.Context, t *testing.T, pod *corev1.Pod) (gpu string, repair func(context.Context)) {
	t.Helper()
	gpu, node := expectGPU(ctx, t, pod), pod.Spec.NodeName
	library := libraries[node]
	number := slices.IndexFunc(slices.Collect(uuids), func(uuid string) bool { return uuid == gpu })
	if f.xid == 0 {
		library.Lose(t, number)
	} else {
		library.Break(t, number, f.xid)
	}
	repaired := false
	repair = func(ctx context.Context) {
		repaired = true
		if f.xid != 0 {
			// A reset: the GPU leaves the bus and comes back, without the error.
			library.Repair(t)
			library.Lose(t, number)
			awaitSaid(ctx, t, node, gpu, "Lost")
		}
		library.Lose(t)
		awaitGPUs(ctx, t, node)
	}
	t.Cleanup(func() {
		if !repaired {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			repair(ctx)
		}
	})
	return gpu, repair
}

// uuids yields those of a node's GPUs.
func uuids(yield func(string) bool) {
	for number := range perNode {
		if !yield(nvmltest.UUID(number)) {
			return
		}
	}
}

// awaitSaid waits until a node says that a GPU is unhealthy for that reason, or does not list it.
func awaitSaid(ctx context.Context, t *testing.T, node, gpu, reason string) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, node, "to say that "+gpu+" is "+reason, func(now *corev1.Node) bool {
		list, err := deviceinfo.DecodeUnhealthy(now.Annotations[deviceinfo.UnhealthyAnnotation])
		listed := strings.Contains(now.Annotations[deviceinfo.Annotation], gpu)
		return err == nil && (!listed || slices.ContainsFunc(list, func(d deviceinfo.UnhealthyDevice) bool {
			return strings.HasSuffix(d.Device, "/"+gpu) && d.Reason == reason
		}))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// expectGPU returns the GPU of a pod's only container. It fails the test unless the container has
// one, and just what the scheduler chose for it, as the kernel has it.
func expectGPU(ctx context.Context, t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	now, err := shared.Client.AwaitPod(ctx, pod, "to be ready", kube.Ready)
	if err != nil {
		t.Fatal(err)
	}
	allocation, err := deviceinfo.PodAllocation(now)
	if err != nil {
		t.Fatal(err)
	}
	var chosen []string
	for _, from := range allocation.RunningContainers["main"].AllocateFrom {
		_, after, _ := strings.Cut(string(from), "/gpu/")
		uuid, _, _ := strings.Cut(after, "/")
		chosen = append(chosen, now.Spec.NodeName+" "+uuid)
	}
	_, id, _ := strings.Cut(now.Status.ContainerStatuses[0].ContainerID, "://")
	var running map[string]audit.Container
	// The runtime's own process is the first one for a moment.
	clustertest.Await(ctx, t, "the container of pod "+pod.Name+" to have a process", func() bool {
		running = report(t)
		return running[id].Devices != nil
	})
	if has := running[id].Devices; len(chosen) != 1 || !slices.Equal(has, chosen) {
		t.Fatalf("pod %s: the scheduler chose %q, the container has %q", pod.Name, chosen, has)
	}
	return strings.TrimPrefix(chosen[0], now.Spec.NodeName+" ")
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// mixed are limits of which two pods fit on a node, and no third.
var mixed = limits{"gpu.intel.com/i915": 2, "npu.intel.com/accel": 1, "nvidia.com/gpu": 2}

func TestContainersNeverNoticeThatProgramsAreKilledAndNoDeviceIsGivenTwice(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	holder := runPod(ctx, t, on(n, devicePod(namespace, "holder", mixed)))
	held := expectDevices(ctx, t, holder)
	for i, killed := range []struct {
		name     string
		programs []*cluster.Component
	}{
		{"the plugins", []*cluster.Component{n.plugins[intelGPU], n.plugins[intelNPU], n.plugins[nvidia]}},
		{"kubecri", []*cluster.Component{n.Kubecri}},
		{"the kubelet", []*cluster.Component{n.Kubelet}},
		{"all of them", []*cluster.Component{n.Kubelet, n.plugins[intelGPU], n.plugins[nvidia], n.Kubecri, n.plugins[intelNPU]}},
	} {
		t.Run(killed.name+" killed", func(t *testing.T) {
			restart(ctx, t, killed.programs...)
			n.awaitAll(ctx, t) // until then, the kubelet would refuse pods for good

			other := runPod(ctx, t, on(n, devicePod(namespace, fmt.Sprintf("other-%d", i), mixed)))
			ids := expectDevices(ctx, t, other)
			for resource, all := range ids {
				for _, id := range all {
					for _, mine := range held[resource] {
						if id == mine {
							t.Errorf("%s of %s was given to pods %s and %s", id, resource, holder.Name, other.Name)
						}
					}
				}
			}
			now := await(ctx, t, holder, "to be ready still", kube.Ready)
			if diff := cmp.Diff(holder.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
				t.Errorf("the container that was there noticed something (-before +after):\n%s", diff)
			}
			if err := shared.Client.DeletePod(ctx, other); err != nil {
				t.Fatal(err)
			}
		})
	}
	again := restartContainer(ctx, t, holder)
	if diff := cmp.Diff(held, expectDevices(ctx, t, again)); diff != "" {
		t.Errorf("devices of pod %s (-before +in a new container):\n%s", holder.Name, diff)
	}
}

// restart kills programs all at once, and starts them again.
func restart(ctx context.Context, t *testing.T, programs ...*cluster.Component) {
	t.Helper()
	for _, program := range programs {
		if err := program.Kill9(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range programs {
		if err := program.Start(); err != nil && program.PID() == 0 { // a plugin may have been started already
			t.Fatal(err)
		}
	}
}

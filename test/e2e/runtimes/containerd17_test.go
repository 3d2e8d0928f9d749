// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// timeout is how long a test waits for something that should take seconds.
const timeout = 3 * time.Minute

func TestDevicePodsOnContainerd17KeepTheirDevicesOverEveryRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	node := shared.Nodes[0]
	if version, err := node.Run(ctx, "crictl", "version"); err != nil || !strings.Contains(version, "1.7.") {
		t.Fatalf("the node's runtime is not containerd 1.7: %v\n%s", err, version)
	}
	observer, err := observe.New(ctx, shared)
	if err != nil {
		t.Fatal(err)
	}
	namespace := clustertest.Namespace(t, shared.Client)
	before := clustertest.RunPod(ctx, t, shared.Client, twoGPUs(namespace, "before", node))
	devices := inspect(ctx, t, observer, before)

	for name, restarted := range map[string]*cluster.Component{"kubecri": node.Kubecri, "containerd": node.Containerd} {
		t.Run(name+" is killed", func(t *testing.T) {
			if err := restarted.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			if err := shared.AwaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			after := clustertest.RunPod(ctx, t, shared.Client, twoGPUs(namespace, "after-"+name, node))
			inspect(ctx, t, observer, after)
			now := clustertest.AwaitPod(ctx, t, shared.Client, before, "to be ready still", kube.Ready)
			if diff := cmp.Diff(before.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
				t.Errorf("the container noticed something (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(devices, inspect(ctx, t, observer, now)); diff != "" {
				t.Errorf("devices (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("the container is killed", func(t *testing.T) {
		again := clustertest.RestartContainer(ctx, t, shared.Client, before)
		if diff := cmp.Diff(devices, inspect(ctx, t, observer, again)); diff != "" {
			t.Errorf("devices (-before +in a new container):\n%s", diff)
		}
	})
}

// twoGPUs returns a pod for a node whose container main requests two GPUs.
func twoGPUs(namespace, name string, node *cluster.Node) *corev1.Pod {
	return clustertest.On(node.Name,
		clustertest.IdlePod(namespace, name, map[corev1.ResourceName]int64{observe.Resource: 2}))
}

// inspect returns the devices that a pod's container has, which must be the two that the scheduler
// chose for it and no others.
func inspect(ctx context.Context, t *testing.T, observer *observe.Observer, pod *corev1.Pod) []string {
	t.Helper()
	var seen *observe.Observation
	what := "the kubelet of pod " + pod.Name + " to reach the container runtime"
	err := await.Until(ctx, what, func(ctx context.Context) (done bool, err error) {
		seen, err = observer.Observe(ctx, pod, "main")
		if err != nil && strings.Contains(err.Error(), "code = Unavailable") {
			return false, nil
		}
		return true, err
	})
	if err == nil {
		err = seen.Agree()
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(seen.Visible) != 2 {
		t.Errorf("%s has the devices %q, want 2", seen, seen.Visible)
	}
	return seen.Visible
}

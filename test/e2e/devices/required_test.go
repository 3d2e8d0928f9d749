// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// An administrator who takes kubecri away by hand points the kubelet at the container runtime. Here
// the test is the kubelet: it has the runtime create containers in the sandboxes of pods while
// kubecri is away.
func TestTheRuntimeCreatesNoContainerOfADevicePodWhileKubecriIsAway(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	plain := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(node.Name, clustertest.IdlePod(namespace, "plain", nil)))
	awaitRequirable(ctx, t, node)
	holder := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "holder", 1)))
	if err := node.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}

	// A runtime forgets a plugin that has gone at the end of the next event of any container.
	if err := node.CreateInSandbox(ctx, plain, "late", nil); err != nil {
		t.Errorf("a container of a pod without devices while kubecri is away: %v", err)
	}
	const refusal = "not present" // the required plugin "kubedevice"
	if err := node.CreateInSandbox(ctx, holder, "late", nil); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a container of %s while kubecri is away: %v, want %s", holder.Name, err, refusal)
	}

	if err := node.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}
	clustertest.Await(ctx, t, "kubecri is registered with the container runtime", func() bool {
		err := node.CreateInSandbox(ctx, holder, "late", nil)
		if err == nil {
			return true
		}
		if !strings.Contains(err.Error(), refusal) {
			t.Fatal(err)
		}
		return false
	})
	expectDevices(ctx, t, clustertest.RestartContainer(ctx, t, shared.Client, holder), "main", 1)
}

// awaitRequirable waits until the node publishes that its containers can require kubecri.
func awaitRequirable(ctx context.Context, t *testing.T, node *cluster.Node) {
	t.Helper()
	clustertest.Await(ctx, t, "node "+node.Name+" publishes that kubecri can be required", func() bool {
		object, err := shared.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return object.Annotations[deviceinfo.RequiredPluginAnnotation] == deviceinfo.NRIPlugin
	})
}

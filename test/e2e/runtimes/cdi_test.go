// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// cdiFile describes the CDI device that the plugin of testdata/cdi names.
const cdiFile = `{"cdiVersion": "0.5.0", "kind": "example.com/widget",
  "devices": [{"name": "w0", "containerEdits": {"env": ["FROM_CDI=yes"]}}]}`

// wantsWidget is the annotation of a pod whose container main requests more memory than any device
// but that plugin's has.
const wantsWidget = `{"runningcontainer": {"main": {"requests": {"gpu/a/memory": 500000000000}}}}`

func TestContainerd17WithoutCDIGetsNoContainerThatNeedsIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	describeCDI(ctx, t)
	namespace := clustertest.Namespace(t, shared.Client)
	on := clustertest.RunPod(ctx, t, shared.Client, widgetPod(namespace, "on"))
	hasIt(ctx, t, on)
	clustertest.DeletePod(ctx, t, shared.Client, on)

	t.Cleanup(func() { switchCDI(context.WithoutCancel(ctx), t, "true") })
	switchCDI(ctx, t, "false")
	refused := clustertest.CreatePod(ctx, t, shared.Client, widgetPod(namespace, "off"))
	refused = clustertest.AwaitPod(ctx, t, shared.Client, refused, "to report what is wrong",
		func(pod *corev1.Pod) bool {
			for _, status := range pod.Status.ContainerStatuses {
				if waits := status.State.Waiting; waits != nil && strings.Contains(waits.Message, "enable_cdi = true") {
					return true
				}
			}
			return false
		})

	switchCDI(ctx, t, "true")
	hasIt(ctx, t, clustertest.AwaitPod(ctx, t, shared.Client, refused, "to be ready now that the runtime has CDI",
		kube.Ready))
}

func widgetPod(namespace, name string) *corev1.Pod {
	pod := clustertest.On(shared.Nodes[0].Name, clustertest.IdlePod(namespace, name, nil))
	pod.Annotations = map[string]string{deviceinfo.Annotation: wantsWidget}
	return pod
}

// describeCDI puts cdiFile where the node's runtime reads it.
func describeCDI(ctx context.Context, t *testing.T) {
	t.Helper()
	const write = `mkdir -p /run/cdi && printf %s "$1" >/run/cdi/example.json`
	if _, err := shared.Nodes[0].Run(ctx, "/bin/sh", "-c", write, "sh", cdiFile); err != nil {
		t.Fatal(err)
	}
}

// switchCDI switches containerd's CDI on or off, and restarts it.
func switchCDI(ctx context.Context, t *testing.T, to string) {
	t.Helper()
	node := shared.Nodes[0]
	config := filepath.Join(directory, "config", node.Name, "containerd.toml")
	if _, err := node.Run(ctx, "/bin/sed", "-i", "s/enable_cdi = .*/enable_cdi = "+to+"/", config); err != nil {
		t.Error(err)
	}
	if err := node.Containerd.Restart(ctx); err != nil {
		t.Error(err)
	}
	// the node may not have noticed
	clustertest.Await(ctx, t, "containerd to answer", func() bool {
		_, err := node.Run(ctx, "crictl", "version")
		return err == nil
	})
	if err := shared.AwaitReady(ctx); err != nil {
		t.Error(err)
	}
}

func hasIt(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	printed, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "echo $FROM_CDI")
	if err != nil || strings.TrimSpace(printed) != "yes" {
		t.Errorf("pod %s is without what its CDI device sets: FROM_CDI is %q, error %v", pod.Name, printed, err)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

func TestPodsWithoutDevicesRunAlsoWhenEveryPluginIsBroken(t *testing.T) {
	node := shared.Nodes[1]
	for name, prepare := range map[string]func(ctx context.Context, t *testing.T){
		"with good plugins":   func(context.Context, *testing.T) {},
		"with broken plugins": func(ctx context.Context, t *testing.T) { breakPlugins(ctx, t, node) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			prepare(ctx, t)

			static := runStatic(ctx, t, node.Name)
			plain := clustertest.RunPod(ctx, t, shared.Client,
				clustertest.On(node.Name, gpuPod(clustertest.Namespace(t, shared.Client), "plain", 0)))

			for _, pod := range []*corev1.Pod{static, plain} {
				expectDevices(ctx, t, pod, "main", 0)
			}
		})
	}
}

// breakPlugins leaves a node with files that are no plugins, until the test ends.
func breakPlugins(ctx context.Context, t *testing.T, node *cluster.Node) {
	t.Helper()
	good := files.devicePlugins(node.Name)
	moved := good + ".moved"
	if err := os.Rename(good, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(good, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(good, "simgpu.so"), []byte("no plugin"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		if err := os.RemoveAll(good); err != nil {
			t.Error(err)
		}
		if err := os.Rename(moved, good); err != nil {
			t.Error(err)
		}
		restart(ctx, t, node.Kubecri)
		awaitGPUs(ctx, t, node.Name, perNode)
	})
	restart(ctx, t, node.Kubecri).await(ctx, t, "A plugin is left out")
	awaitGPUs(ctx, t, node.Name, 0)
}

// runStatic makes the kubelet of a node run a pod from a file, until the test ends, and waits until
// it is ready.
func runStatic(ctx context.Context, t *testing.T, node string) *corev1.Pod {
	t.Helper()
	pod := kube.NewPod("static", image.Busybox, clustertest.Idle...)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	content, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(files.staticPods(node), "static.yaml")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "static-" + node}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
		awaitPods(ctx, t, mirror.Namespace, "to lose the static pod",
			func(all podSet) bool { return all[mirror.Name] == nil })
	})
	awaitPods(ctx, t, mirror.Namespace, "to have the static pod ready", func(all podSet) bool {
		now := all[mirror.Name]
		if now == nil || !kube.Ready(now) {
			return false
		}
		mirror = now
		return true
	})
	return mirror
}

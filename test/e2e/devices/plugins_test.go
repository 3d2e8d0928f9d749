// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

func TestFilesThatAreNoGoodPluginsAreNamedOnceAndLeftOut(t *testing.T) {
	ours := sdkVersion(t)
	old := buildPlugin(t, "testdata/panics", "example.com/old", "v0.0.9")
	panics := buildPlugin(t, "testdata/panics", "example.com/gadget", ours)
	ctx := begin(t)
	node := shared.Nodes[1]
	good := map[string][]byte{}
	for side, file := range map[string]string{
		"device":    filepath.Join(files.devicePlugins(node.Name), simgpu),
		"scheduler": filepath.Join(files.schedulerPlugins(), simgpu),
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		good[side] = content
	}
	both := func(device, scheduler []byte) map[string][]byte {
		return map[string][]byte{"device": device, "scheduler": scheduler}
	}
	why := map[string]string{
		"half.so":      "is truncated",
		"text.so":      "is no shared library",
		"other-sdk.so": "module " + sdkModule + " is v0.0.9 in the plugin and " + ours + " here",
		"panics.so":    "panicked: no gadgets",
	}
	logs := install(ctx, t, node, map[string]map[string][]byte{
		"half.so":      both(good["device"][:len(good["device"])/2], good["scheduler"][:len(good["scheduler"])/2]),
		"text.so":      both([]byte("not a plugin\n"), []byte("not a plugin\n")),
		"other-sdk.so": old,
		"panics.so":    panics,
	})

	for _, log := range logs {
		log.await(ctx, t, simgpu) // the last file in the order of names but one
		log.await(ctx, t, "text.so")
		for file, cause := range why {
			lines := log.lines(t, "/"+file)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "E") || !strings.Contains(lines[0], cause) {
				t.Errorf("%s says of %s, in %d lines, want one error with %q:\n%s", log.program.Name, file, len(lines),
					cause, strings.Join(lines, "\n"))
			}
		}
	}
	pod := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(node.Name, gpuPod(clustertest.Namespace(t, shared.Client), "served-by-the-good-one", 2)))
	expectDevices(ctx, t, pod, "main", 2)
}

func TestAPluginMadeFromTheTemplateElsewhereGivesItsDevices(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	template := filepath.Join(root, "plugins", "template")
	widget := buildPlugin(t, template, "example.com/widget", sdkVersion(t))
	ctx := begin(t)
	node := shared.Nodes[1]
	const mknod = "mkdir -p /dev/widgets/b0 /dev/widgets/b1 && mknod -m 666 /dev/widgets/b0/w0 c 60 100 && " +
		"mknod -m 666 /dev/widgets/b1/w1 c 60 101 && mknod -m 666 /dev/widgets/b1/w2 c 60 102"
	if _, err := node.Run(ctx, "/bin/sh", "-c", mknod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := node.Run(context.WithoutCancel(ctx), "/bin/rm", "-r", "/dev/widgets"); err != nil {
			t.Error(err)
		}
	})
	logs := install(ctx, t, node, map[string]map[string][]byte{"widget.so": widget})
	for _, log := range logs {
		log.await(ctx, t, "/widget.so")
		if lines := log.lines(t, "/widget.so"); !strings.Contains(lines[0], "Loaded a plugin") {
			t.Fatalf("%s does not load the plugin: %s", log.program.Name, lines[0])
		}
	}

	pod := templatePod(t, template)
	pod.Namespace = clustertest.Namespace(t, shared.Client)
	pod = clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, pod), "to succeed",
		kube.Succeeded)

	printed, err := shared.Client.Logs(ctx, pod, pod.Spec.Containers[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(printed, "/dev/widgets/b1/w1,/dev/widgets/b1/w2\n") || strings.Contains(printed, "b0") {
		t.Errorf("the container does not have the two widgets of board b1 alone:\n%s", printed)
	}
}

// templatePod is the pod that the template comes with, with an image that the nodes have.
func templatePod(t *testing.T, template string) *corev1.Pod {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(template, "pod.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(content, pod); err != nil {
		t.Fatal(err)
	}
	pod.Spec.Containers[0].Image = image.Busybox
	return pod
}

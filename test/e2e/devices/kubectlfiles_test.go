// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

const mistakes = `apiVersion: v1
kind: Pod
metadata:
  name: mistaken
  annotations:
    KubeDevice/DeviceInfo: |
      {"runningcontainer": {"main": {"requests": {"gpu/a/memmory": 1073741824}}}}
spec:
  containers:
  - name: main
    image: registry.example/app
    resources: {limits: {nvidia.com/gpus: 1}}
`

func TestKubectlDeviceFindsMistakesByWhatTheClusterHas(t *testing.T) {
	ctx := begin(t)
	k := newKubectlDevice(ctx, t)
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte(mistakes), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := k.run("lint", "-f", file)
	for _, want := range []string{
		file + `:7:58: warning: annotation KubeDevice/DeviceInfo: runningcontainer["main"].` +
			`requests["gpu/a/memmory"]: no gpu of any node has "memmory"; did you mean "memory"?`,
		file + `:12:26: warning: no node has the resource "nvidia.com/gpus"; did you mean "nvidia.com/gpu"?`,
	} {
		if !strings.Contains(stdout, want+"\n") {
			t.Errorf("it does not say\n%s", want)
		}
	}
	if status != 0 || stderr != "" || t.Failed() {
		t.Errorf("exit status %d, it says:\n%s%s", status, stdout, stderr)
	}
	if _, _, status := k.run("lint", "--strict", "-f", file); status != 1 {
		t.Errorf("with --strict the exit status is %d, want 1", status)
	}
}

func TestAKubectlDeviceReportHasWhatSupportNeedsAndNoSecrets(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	ctx := begin(t)
	k := newKubectlDevice(ctx, t)
	namespace := clustertest.Namespace(t, shared.Client)
	pod := gpuPod(namespace, "trainer", 1)
	pod.Annotations = map[string]string{"example.com/token": secret}
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "TOKEN", Value: secret})
	pod = clustertest.RunPod(ctx, t, shared.Client, pod)

	file := filepath.Join(t.TempDir(), "report.tar.gz")
	if stdout, stderr, status := k.run("report", "-o", file); status != 0 || strings.TrimSpace(stdout) != file {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	files := unpack(t, file)
	for name, want := range map[string][]string{
		"index.txt":     {"nodes.yaml", "pods.yaml", "events.yaml"},
		"nodes.yaml":    {"node-1", "node-2", "KubeDevice/DeviceInfo"},
		"nodes.txt":     {"gpu/gpu-0", namespace + "/trainer/main"},
		"pods.yaml":     {string(pod.UID), pod.Spec.NodeName},
		"events.yaml":   {"trainer", "Scheduled"},
		"policies.yaml": {"kubedevice-node-inventories"},
		"versions.yaml": {"v1.37."},
	} {
		for _, text := range want {
			if !strings.Contains(files[name], text) {
				t.Errorf("%s lacks %q:\n%.2000s", name, text, files[name])
			}
		}
	}
	for name, content := range files {
		if strings.Contains(content, secret) {
			t.Errorf("%s has a secret", name)
		}
	}
}

// unpack returns the files of a compressed tar file by their names, without the directory that
// they are in.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if _, relative, ok := strings.Cut(path.Clean(header.Name), "/"); ok {
			files[relative] = string(content)
		}
	}
}

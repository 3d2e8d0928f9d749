// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/observe"
)

const (
	// restoredImage is the image that a container was frozen into.
	restoredImage = "localhost/restored:1"
	// checkpointAnnotation marks an image as a checkpoint, for containerd.
	checkpointAnnotation = "org.criu.checkpoint.container.name"
	// grantAnnotation is an annotation of containers with devices in the runtime.
	grantAnnotation = "KubeDevice/Grant"
)

// CRIU freezes a container that has two GPUs, and containerd restores it, memory and annotations
// included, for pods that run the image. One pod requests no device, the other one has a GPU of its
// own.
func TestARestoredContainerHasTheDevicesOfItsOwnPodAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	node := shared.Nodes[1]
	if version, err := node.Run(ctx, "crictl", "version"); err != nil || !strings.Contains(version, "2.3.") {
		t.Fatalf("the node's runtime is not containerd 2.3: %v\n%s", err, version)
	}
	observer, err := observe.New(ctx, shared)
	if err != nil {
		t.Fatal(err)
	}
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client, twoGPUs(namespace, "holder", node))
	devices := inspect(ctx, t, observer, holder)
	encoded := annotationsOf(ctx, t, holder)[grantAnnotation]
	freeze(ctx, t, holder)

	restored := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.Containers[0].Image = restoredImage
		pod = clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, pod))
		annotations := annotationsOf(ctx, t, pod)
		if annotations["restored"] != "true" || annotations[grantAnnotation] != encoded || encoded == "" {
			t.Fatalf("pod %s was not restored with the annotation of the holder's container: %q", pod.Name, annotations)
		}
		return pod
	}
	thief := restored(clustertest.IdlePod(namespace, "thief", nil))
	other := restored(clustertest.IdlePod(namespace, "other", map[corev1.ResourceName]int64{observe.Resource: 1}))
	for _, pod := range []*corev1.Pod{thief, other} {
		choice, err := observer.Choice(pod, "main")
		if err != nil {
			t.Fatal(err)
		}
		if opened := opens(ctx, t, observer, pod); !slices.Equal(opened, choice.Chosen) {
			t.Errorf("pod %s can open the devices %q, want its own: %q", pod.Name, opened, choice.Chosen)
		}
	}

	// From now on, only the annotations of containers say which pod has which device.
	if err := node.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(node.Var(), "lib", "kubedevice", "grants")); err != nil {
		t.Fatal(err)
	}
	if err := node.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}
	clustertest.AwaitMetric(ctx, t, node, `kubecri_grant_annotations_ignored_total{reason="forged"} 2`)
	clustertest.AwaitSuccess(ctx, t, "the holder to have its GPUs and the thief none", func() error {
		printed, err := node.RunKubecri(ctx, "grants") // of the record, which is written after the metric
		if err == nil && (strings.Contains(printed, thief.Name) || !strings.Contains(printed, holder.Name)) {
			err = errors.New("the record says:\n" + printed)
		}
		return err
	})
	again := inspect(ctx, t, observer, clustertest.RestartContainer(ctx, t, shared.Client, holder))
	if strings.Join(again, " ") != strings.Join(devices, " ") {
		t.Errorf("the holder's next container has %q, want %q", again, devices)
	}
}

// opens returns the devices of its node that a pod's container main can open. A restored container
// sees the device nodes that it had when it was frozen, which says nothing.
func opens(ctx context.Context, t *testing.T, observer *observe.Observer, pod *corev1.Pod) []string {
	t.Helper()
	printed, err := shared.Client.Exec(ctx, pod, "main", observe.Probe(observer.Devices(pod.Spec.NodeName))...)
	if err != nil {
		t.Fatal(err)
	}
	var opened []string
	for line := range strings.Lines(printed) {
		if words := strings.Fields(line); !strings.Contains(line, "Operation not permitted") {
			opened = append(opened, words[1])
		}
	}
	if tried := strings.Count(printed, "\n"); tried != len(observer.Devices(pod.Spec.NodeName)) {
		t.Fatalf("pod %s tried %d devices: %s", pod.Name, tried, printed)
	}
	slices.Sort(opened)
	return opened
}

// annotationsOf returns the annotations that a pod's container main has in the runtime.
func annotationsOf(ctx context.Context, t *testing.T, pod *corev1.Pod) map[string]string {
	t.Helper()
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	printed, err := shared.Nodes[1].Run(ctx, "crictl", "inspect", id)
	if err != nil {
		t.Fatal(err)
	}
	var inspected struct {
		Status struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal([]byte(printed), &inspected); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	return inspected.Status.Annotations
}

// freeze has the kubelet make a checkpoint of a pod's container main, and makes restoredImage of it
// on the pod's node, as its documentation says.
func freeze(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	node := shared.Nodes[1]
	answer, err := shared.Client.CoreV1().RESTClient().Post().AbsPath("/api/v1/nodes", node.Name, "proxy", "checkpoint",
		pod.Namespace, pod.Name, "main").DoRaw(ctx)
	if err != nil {
		t.Fatalf("the kubelet makes no checkpoint: %v: %s", err, answer)
	}
	var made struct{ Items []string }
	if err := json.Unmarshal(answer, &made); err != nil || len(made.Items) != 1 {
		t.Fatalf("the kubelet answers %v: %s", err, answer)
	}
	checkpoint, err := os.Open(filepath.Join(node.Var(), strings.TrimPrefix(made.Items[0], "/var/")))
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	archive, err := os.Create(filepath.Join(node.Var(), "restored.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(archive.Name())
	files := filesOf(t, checkpoint)
	err = image.WriteArchive(archive, goruntime.GOARCH, image.Image{
		Name: restoredImage, Files: files, Annotations: map[string]string{checkpointAnnotation: "main"},
	})
	if err := errors.Join(err, archive.Close()); err != nil {
		t.Fatal(err)
	}
	images := func(args ...string) {
		t.Helper()
		printed, err := node.Run(ctx, "ctr", slices.Concat([]string{"--namespace=k8s.io", "images"}, args)...)
		if err != nil {
			t.Fatalf("ctr images %q: %v: %s", args, err, printed)
		}
	}
	images("import", "/var/restored.tar")
	// By this name, the image below would be known had the kubelet pulled it.
	images("tag", "--force", "--skip-reference-check", image.Busybox, imageBelow(t, files))
}

// imageBelow returns the name of the image that a frozen container was created from.
func imageBelow(t *testing.T, checkpoint []image.File) string {
	t.Helper()
	for _, file := range checkpoint {
		if filepath.Base(file.Path) != "config.dump" {
			continue
		}
		var config struct{ RootfsImageRef string }
		if err := json.Unmarshal(file.Content, &config); err != nil {
			t.Fatal(err)
		}
		return config.RootfsImageRef
	}
	t.Fatal("the checkpoint has no config.dump")
	return ""
}

// filesOf returns the files of a tar archive.
func filesOf(t *testing.T, archive io.Reader) []image.File {
	t.Helper()
	var files []image.File
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, image.File{Path: header.Name, Mode: header.FileInfo().Mode(), Content: content})
	}
}

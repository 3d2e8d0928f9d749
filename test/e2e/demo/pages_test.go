// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/demo"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/observe"
	"github.com/kubedevice/kubedevice/test/pages"
)

// testPages runs the commands of documents that are marked for this package, in a shell each. Pages
// have their own pods and holders: what is printed is not compared.
func testPages(t *testing.T, kept *cluster.Cluster) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := pages.MarkedFor(root, "test/e2e/demo")
	if err != nil {
		t.Fatal(err)
	}
	defer untaint(t, kept.Client)
	work := t.TempDir()
	for _, block := range blocks {
		shell := exec.CommandContext(t.Context(), "bash", "-ec", demo.Setup(kept)+"\n"+block.Script)
		shell.Dir = work
		printed, err := shell.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s%s", block, err, block.Script, printed)
		}
		t.Logf("%s\n%s%s", block, block.Script, printed)
	}
}

// elsewhere are the examples that need other devices than the cluster has.
var elsewhere = map[string]string{
	"instances":   "MIG instances",
	"gpu-and-nic": "NICs with a device plugin",
}

// testExamples runs the pods of deploy/examples, with the image that the nodes have, one after
// another: the GPUs of each container are those that the scheduler chose for it.
func testExamples(t *testing.T, kept *cluster.Cluster) {
	ctx := t.Context()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy", "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	observer, err := observe.New(ctx, kept)
	if err != nil {
		t.Fatal(err)
	}
	removePods(t, kept.Client) // of the demo: the examples find free GPUs
	gpus := map[string]int{"pair": 2, "best-pair": 2, "two-pairs": 4, "share": 1, "hami": 1, "kai": 1}
	namespace := clustertest.Namespace(t, kept.Client)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if need := elsewhere[name]; need != "" {
			t.Logf("%s is not run: it needs %s", name, need)
			continue
		}
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(manifest, pod); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		pod.Namespace = namespace
		pod.Spec.Containers[0].Image = image.Busybox
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
		pod = clustertest.RunPod(ctx, t, kept.Client, pod)
		seen, err := observer.Observe(ctx, pod, pod.Spec.Containers[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := seen.Agree(); err != nil {
			t.Error(err)
		}
		if len(seen.Chosen) != gpus[name] {
			t.Errorf("%s has the GPUs %q, want %d", name, seen.Chosen, gpus[name])
		}
		if name == "pair" { // its log names its GPUs, as the page says
			printed, err := kept.Client.Logs(ctx, pod, pod.Spec.Containers[0].Name)
			if err != nil || strings.Count(printed, "gpu-") != 2 {
				t.Errorf("%s prints %q (%v), want two GPUs", name, printed, err)
			}
		}
		clustertest.DeletePod(ctx, t, kept.Client, pod)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// mixed are 60 pods of every kind that a plugin meets. Those that fit need all 16 GPUs.
var mixed = []struct {
	kind       string
	pods       int
	annotation string
	gpus       int64 // that the container main counts in its limits
	inInit     bool  // an init container counts them instead
	waits      string
}{
	{kind: "pair", pods: 3, gpus: 2}, // first: single GPUs may split the last pairs
	{kind: "limits", pods: 2, gpus: 1},
	{kind: "empty-annotation", pods: 2, annotation: "{}", gpus: 1},
	{kind: "no-container", pods: 2, annotation: `{"requests":{"gpu/gpu-generate-topology":1}}`, gpus: 1},
	{kind: "init", pods: 4, gpus: 1, inInit: true},
	{kind: "plain", pods: 10},
	{kind: "plain-annotation", pods: 10, annotation: "{}"},
	{
		kind: "unknown-container", pods: 17, gpus: 1, waits: `the pod has no such container`,
		annotation: `{"runningcontainer":{"other":{"requests":{"gpu/a/cards":1}}}}`,
	},
	{kind: "excess", pods: 10, gpus: 1, waits: "2 have no free gpu"},
}

// The plugin is in the style of the published host's: it uses nothing but DeviceScheduler and
// checks no map for nil.
func TestAPluginForThePublishedHostServesSixtyPodsOfEveryKind(t *testing.T) {
	ctx := begin(t)
	built := buildPlugin(ctx, t, "testdata/topology", "example.com/topology", sdkVersion(ctx, t), "scheduler")
	log := replaceScheduler(ctx, t, "topology.so", built["scheduler"])
	namespace := clustertest.Namespace(t, shared.Client)
	expected := map[string]string{} // what a pod waits for, by its name; "" for those that run
	for _, kind := range mixed {
		var creating errgroup.Group
		for i := range kind.pods {
			pod := gpuPod(namespace, fmt.Sprintf("%s-%d", kind.kind, i), kind.gpus)
			if kind.annotation != "" {
				pod.Annotations = map[string]string{deviceinfo.Annotation: kind.annotation}
			}
			if kind.inInit {
				first := *pod.Spec.Containers[0].DeepCopy()
				first.Name, first.Command = "first", []string{"true"}
				pod.Spec.InitContainers = []corev1.Container{first}
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			}
			expected[pod.Name] = kind.waits
			creating.Go(func() error {
				_, err := shared.Client.CreatePod(ctx, pod)
				return err
			})
		}
		if err := creating.Wait(); err != nil {
			t.Fatal(err)
		}
		if kind.waits == "" {
			awaitPods(ctx, t, namespace, "to have nodes", func(all podSet) bool {
				return len(all.those(kube.Scheduled)) == runs(expected)
			})
		}
	}

	all := awaitPods(ctx, t, namespace, "to run, or to wait with a reason", func(all podSet) bool {
		return len(all.those(kube.Ready)) == runs(expected) &&
			len(all.those(kube.Unschedulable)) == len(expected)-runs(expected)
	})
	withDevices := maps.Clone(all)
	maps.DeleteFunc(withDevices, func(name string, _ *corev1.Pod) bool { return strings.HasPrefix(name, "plain-") })
	if err := withDevices.twice(); err != nil {
		t.Error(err)
	}
	for name, pod := range all {
		reason := unschedulable(pod)
		if !strings.Contains(reason, expected[name]) || (reason == "") != (expected[name] == "") {
			t.Errorf("pod %s waits for %q, want %q", name, reason, expected[name])
		}
		if strings.HasPrefix(name, "pair-") {
			seen := inspect(ctx, t, pod, "main")
			if len(seen.Paths) != 2 || pairOf(seen.Paths[0]) != pairOf(seen.Paths[1]) {
				t.Errorf("pod %s has %q, want an NVLink pair", name, seen.Paths)
			}
		}
	}
	if lines := log.lines(t, "panic"); len(lines) > 0 {
		t.Errorf("the plugin panicked:\n%s", strings.Join(lines, "\n"))
	}
}

// runs returns how many pods are expected to run.
func runs(expected map[string]string) (count int) {
	for _, waits := range expected {
		if waits == "" {
			count++
		}
	}
	return count
}

// pairOf returns the path of a GPU's pair, of .../gpugrp0/<pair>/gpu/<id>/cards.
func pairOf(gpu string) string { return path.Dir(path.Dir(path.Dir(gpu))) }

// unschedulable returns why the scheduler has found no node for a pod, "" for one with a node.
func unschedulable(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

// replaceScheduler gives the scheduler this plugin in place of all others, until the test ends.
func replaceScheduler(ctx context.Context, t *testing.T, name string, plugin []byte) journal {
	t.Helper()
	dir := files.schedulerPlugins()
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(filepath.Join(dir, name)), files.addPlugin("scheduler", dir)); err != nil {
			t.Error(err)
		}
		restart(context.WithoutCancel(ctx), t, shared.Scheduler)
	})
	if err := errors.Join(os.Remove(filepath.Join(dir, simgpu)),
		os.WriteFile(filepath.Join(dir, name), plugin, 0o644)); err != nil {
		t.Fatal(err)
	}
	return restart(ctx, t, shared.Scheduler)
}

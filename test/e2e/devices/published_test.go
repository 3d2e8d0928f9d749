// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// chips is the resource of the plugin in testdata/published: the node has four, in two pairs.
const chips corev1.ResourceName = "example.com/chip"

// mixed are 60 pods of every kind that a plugin meets. Those that fit need all 16 GPUs, and all 4
// chips of the plugin.
var mixed = []struct {
	kind       string
	pods       int
	annotation string
	resource   corev1.ResourceName
	count      int64 // of the resource, in the limits of the container main
	inInit     bool  // an init container counts them instead
	waits      string
}{
	{kind: "chip-pair", pods: 1, resource: chips, count: 2}, // first: single chips may split the last pair
	{kind: "chip", pods: 1, resource: chips, count: 1},
	{kind: "chip-init", pods: 1, resource: chips, count: 1, inInit: true, annotation: "{}"},
	{kind: "gpu", pods: 4, resource: observe.Resource, count: 1},
	{kind: "gpu-empty-annotation", pods: 4, resource: observe.Resource, count: 1, annotation: "{}"},
	{
		kind: "gpu-no-container", pods: 4, resource: observe.Resource, count: 1,
		annotation: `{"requests":{"gpu/gpu-generate-topology":1}}`,
	},
	{kind: "gpu-init", pods: 4, resource: observe.Resource, count: 1, inInit: true},
	{kind: "plain", pods: 8},
	{kind: "plain-annotation", pods: 8, annotation: "{}"},
	{
		kind: "unknown-container", pods: 15, resource: chips, count: 1, waits: `the pod has no such container`,
		annotation: `{"runningcontainer":{"other":{"requests":{"gpu/a/cards":1}}}}`,
	},
	{kind: "excess", pods: 10, resource: chips, count: 1, waits: "1 have no free chip"},
}

// The plugin is in the style of the published host's: it uses nothing but DeviceScheduler and
// checks no map for nil.
func TestAPluginForThePublishedHostServesSixtyPodsOfEveryKind(t *testing.T) {
	published := buildPlugin(t, "testdata/published", "example.com/published", sdkVersion(t))
	ctx := begin(t)
	logs := install(ctx, t, shared.Nodes[0], map[string]map[string][]byte{"published.so": published})
	namespace := clustertest.Namespace(t, shared.Client)
	expected := map[string]string{} // what a pod waits for, by its name; "" for those that run
	for _, kind := range mixed {
		var creating errgroup.Group
		for i := range kind.pods {
			pod := gpuPod(namespace, fmt.Sprintf("%s-%d", kind.kind, i), 0)
			if kind.count > 0 {
				limits := map[corev1.ResourceName]int64{kind.resource: kind.count}
				pod.Spec.Containers[0].Resources = clustertest.Limits(limits)
			}
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
				return len(all.Those(kube.Scheduled)) == runs(expected)
			})
		}
	}

	all := awaitPods(ctx, t, namespace, "to run, or to wait with a reason", func(all podSet) bool {
		return len(all.Those(kube.Ready)) == runs(expected) &&
			len(all.Those(kube.Unschedulable)) == len(expected)-runs(expected)
	})
	for name, pod := range all {
		reason := unschedulable(pod)
		if !strings.Contains(reason, expected[name]) || (reason == "") != (expected[name] == "") {
			t.Errorf("pod %s waits for %q, want %q", name, reason, expected[name])
		}
	}
	gpuPods := all.Those(func(pod *corev1.Pod) bool {
		return strings.HasPrefix(pod.Name, "gpu-") && len(pod.Spec.InitContainers) == 0
	})
	expectDistinct(ctx, t, gpuPods)
	pair, err := shared.Client.Exec(ctx, all["chip-pair-0"], "main", "sh", "-c", "echo $CHIPS")
	if pair = strings.TrimSpace(pair); err != nil || pair != "chip-0,chip-1" && pair != "chip-2,chip-3" {
		t.Errorf("pod chip-pair-0 has the chips %q, %v; want a pair", pair, err)
	}
	for side, log := range logs {
		if lines := log.lines(t, "panic"); len(lines) > 0 {
			t.Errorf("the plugin's %s half panicked:\n%s", side, strings.Join(lines, "\n"))
		}
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

// unschedulable returns why the scheduler has found no node for a pod, "" for one with a node.
func unschedulable(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

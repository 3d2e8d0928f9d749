// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// statusOf returns the status of a node's condition, empty if it has none of the kind.
func statusOf(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return ""
}

// awaitSame waits until both nodes report the same, and the report is complete. Nodes report from
// time to time, and not both at once.
func awaitSame[T any](t *testing.T, inspect func(context.Context, *cluster.Node) (seen T, complete bool, err error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for {
		var saw [2]T
		var reasons []string
		for i, node := range shared.Nodes {
			seen, complete, err := inspect(ctx, node)
			if err != nil || !complete {
				reasons = append(reasons, fmt.Sprintf("%s: complete: %v, %v", node.Name, complete, err))
			}
			saw[i] = seen
		}
		diff := cmp.Diff(saw[1], saw[0])
		if diff == "" && len(reasons) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the nodes differ or are not complete: %q (-without +with kubecri):\n%s", reasons, diff)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func TestBothNodesReportTheSameOfThemselves(t *testing.T) {
	type report struct {
		Conditions []string
		Info       corev1.NodeSystemInfo
		Handlers   []corev1.NodeRuntimeHandler
		Features   *corev1.NodeFeatures
		Images     []string
	}
	awaitSame(t, func(ctx context.Context, node *cluster.Node) (report, bool, error) {
		current, err := shared.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return report{}, false, err
		}
		status := current.Status
		seen := report{Info: status.NodeInfo, Handlers: status.RuntimeHandlers, Features: status.Features}
		seen.Info.BootID, seen.Info.MachineID, seen.Info.SystemUUID = "", "", ""
		for _, condition := range status.Conditions {
			seen.Conditions = append(seen.Conditions, fmt.Sprintf("%s %s %s: %s", condition.Type, condition.Status,
				condition.Reason, condition.Message))
		}
		for _, image := range status.Images {
			seen.Images = append(seen.Images, image.Names...)
		}
		slices.Sort(seen.Images)
		return seen, statusOf(current, corev1.NodeReady) == corev1.ConditionTrue && len(seen.Images) > 0, nil
	})
}

func TestBothNodesMeasureTheSameOfTheirPods(t *testing.T) {
	namespace := clustertest.Namespace(t, shared.Client)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for _, node := range shared.Nodes {
		clustertest.RunPod(ctx, t, shared.Client, podIn(namespace, node, "on-"+node.Name, clustertest.Idle...))
	}
	awaitSame(t, func(ctx context.Context, node *cluster.Node) ([]string, bool, error) {
		printed, err := shared.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node.Name+"/proxy/stats/summary")
		if err != nil {
			return nil, false, err
		}
		var summary struct {
			Node any
			Pods []map[string]any
		}
		if err := json.Unmarshal([]byte(printed), &summary); err != nil {
			return nil, false, err
		}
		fields := map[string]bool{}
		addFields(fields, "node", summary.Node)
		for _, pod := range summary.Pods {
			if reference, ok := pod["podRef"].(map[string]any); ok && reference["namespace"] == namespace {
				addFields(fields, "pod", pod)
			}
		}
		complete := true
		for _, wanted := range []string{
			"node.runtime.imageFs.usedBytes", "pod.containers.cpu.usageNanoCores",
			"pod.containers.memory.workingSetBytes",
			"pod.containers.rootfs.usedBytes", "pod.containers.logs.usedBytes", "pod.ephemeral-storage.usedBytes",
		} {
			complete = complete && fields[wanted]
		}
		return slices.Sorted(maps.Keys(fields)), complete, nil
	})
}

// addFields adds the paths of all that a JSON value holds, those of an array's elements together.
func addFields(fields map[string]bool, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			addFields(fields, path+"."+name, inner)
		}
	case []any:
		for _, inner := range value {
			addFields(fields, path, inner)
		}
	default:
		fields[path] = true
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trial is the program that runs one of upstream's cases once. It has a benchmark and no
// test, as upstream's scheduler_perf is made of benchmarks. Command upstreamcases builds it and
// runs it.
package trial

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	_ "k8s.io/component-base/logs/json/register"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	upstream "k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/scheduler"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

var (
	directory = flag.String("cases", "", "upstream's directory of the cases")
	ours      = flag.Bool("ours", false, "register our framework plugin, and enable it in all profiles")
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkPerfScheduling has the name that upstream's results have.
func BenchmarkPerfScheduling(b *testing.B) {
	if *directory == "" {
		b.Skip("-cases is not set: make bench-upstream-cases runs it")
	}
	b.Chdir(*directory)
	var registry frameworkruntime.Registry
	if *ours {
		registry = scheduler.NewRegistry(allocation.Named{File: "built in", Plugin: kubeletplugin.New()})
		perf.PluginNames = append(perf.PluginNames, frameworkplugin.Name)
	}
	perf.RunBenchmarkPerfScheduling(b, "performance-config.yaml", "cases", registry,
		perf.WithNodeUpdateFn(publishInventories))
}

// publishInventories publishes an inventory on each node that has extended resources, as kubecri
// does for those of the kubelet's device plugins: for our plugin they are devices then. Upstream's
// plugins do not read it.
func publishInventories(tCtx ktesting.TContext, _ *upstream.Scheduler, _ *perf.Workload, nodes *corev1.NodeList) error {
	for i := range nodes.Items {
		node := &nodes.Items[i]
		inventory, err := inventoryOf(node)
		if err != nil {
			return fmt.Errorf("inventory of node %s: %w", node.Name, err)
		}
		if inventory == node.Annotations[deviceinfo.Annotation] {
			continue
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{deviceinfo.Annotation: inventory}},
		})
		if err != nil {
			return err
		}
		_, err = tCtx.Client().CoreV1().Nodes().Patch(tCtx, node.Name, apitypes.MergePatchType, patch,
			metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("publish the inventory of node %s: %w", node.Name, err)
		}
	}
	return nil
}

// inventoryOf returns the annotation of a node: a device for each one that its extended resources
// count. It is empty for a node without any.
func inventoryOf(node *corev1.Node) (string, error) {
	info := types.NewNodeInfoWithName(node.Name)
	for name, quantity := range node.Status.Allocatable {
		if !v1helper.IsExtendedResourceName(name) {
			continue
		}
		info.Capacity[types.ResourceName(name)] = quantity.Value()
		for i := range quantity.Value() {
			device, err := kubeletdevice.Name(kubeletdevice.Device{
				Resource: types.ResourceName(name), ID: strconv.FormatInt(i, 10),
			})
			if err != nil {
				return "", err
			}
			info.Capacity[device] = 1
		}
	}
	if len(info.Capacity) == 0 {
		return "", nil
	}
	info.Allocatable = info.Capacity
	return deviceinfo.EncodeNode(info)
}

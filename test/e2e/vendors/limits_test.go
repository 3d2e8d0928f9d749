// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

func TestAPodWithLimitsAloneGetsWhatTheSchedulerChoseFromEveryPlugin(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	n := nodes[0]
	for _, plugin := range n.Plugins {
		t.Run(plugin.Name, func(t *testing.T) {
			t.Parallel()
			requests := limits{}
			for resource, devices := range plugin.Resources() {
				requests[corev1.ResourceName(resource)] = min(2, int64(len(devices)))
			}
			pod := clustertest.RunPod(ctx, t, shared.Client,
				clustertest.On(n.Name, clustertest.IdlePod(namespace, podName(plugin.Name), requests)))
			expectDevices(ctx, t, pod)
		})
	}
}

func TestAllocateIsCalledOncePerContainerWithTheChosenDevices(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	before := len(allocated(t, n.plugins[sample]))
	pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(n.Name,
		clustertest.IdlePod(clustertest.Namespace(t, shared.Client), "one", limits{"example.com/resource": 1})))
	ids, err := chosen(pod)
	if err != nil {
		t.Fatal(err)
	}

	clustertest.RestartContainer(ctx, t, shared.Client, pod)

	if diff := cmp.Diff([][]string{ids["example.com/resource"]}, allocated(t, n.plugins[sample])[before:]); diff != "" {
		t.Errorf("calls of Allocate (-chosen +received):\n%s", diff)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/observe"
)

// perNode is the number of GPUs of a node.
const perNode = 8

// awaitGPUs waits until a node publishes that many GPUs, and returns the node as it is then.
func awaitGPUs(ctx context.Context, t *testing.T, node string, count int64) *corev1.Node {
	t.Helper()
	what := fmt.Sprintf("to publish %d GPUs", count)
	current, err := shared.Client.AwaitNode(ctx, node, what, func(n *corev1.Node) bool {
		capacity, allocatable := n.Status.Capacity[observe.Resource], n.Status.Allocatable[observe.Resource]
		return capacity.Value() == count && allocatable.Value() == count
	})
	if err != nil {
		t.Fatal(err)
	}
	return current
}

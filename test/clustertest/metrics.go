// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// AwaitMetric waits until the metrics of the node's kubecri have a line.
func AwaitMetric(ctx context.Context, t testing.TB, node *cluster.Node, line string) {
	t.Helper()
	Await(ctx, t, "kubecri's metrics to have "+line, func() bool {
		metrics, err := node.Get(ctx, "/metrics")
		return err == nil && strings.Contains(metrics, "\n"+line+"\n")
	})
}

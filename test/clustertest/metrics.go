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
	for {
		if metrics, err := node.Get(ctx, "/metrics"); err == nil && strings.Contains(metrics, "\n"+line+"\n") {
			return
		}
		Pause(ctx, t, "kubecri's metrics to say "+line)
	}
}

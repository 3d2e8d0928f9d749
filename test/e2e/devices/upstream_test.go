// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
)

const (
	upstreamName = "upstream"
	upstreamPort = 10271
)

// startUpstreamScheduler starts Kubernetes' own scheduler, which knows devices only by their
// number, until the test ends. It returns the name under which pods request it.
func startUpstreamScheduler(ctx context.Context, t *testing.T) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, shared.SchedulerConfig(upstreamName), 0o644); err != nil {
		t.Fatal(err)
	}
	program := shared.NewScheduler(upstreamName, upstreamPort, cluster.Program{Args: []string{"--config=" + config}})
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := program.Terminate(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return upstreamName
}

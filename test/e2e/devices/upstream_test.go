// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
)

const (
	upstreamName = "upstream"
	upstreamPort = 10271
)

// upstreamConfig is the configuration of Kubernetes' own scheduler beside ours.
const upstreamConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %s
leaderElection:
  leaderElect: false
profiles:
- schedulerName: %s
`

// startUpstreamScheduler starts Kubernetes' own scheduler, which knows devices only by their
// number, until the test ends. It returns the name under which pods request it.
func startUpstreamScheduler(ctx context.Context, t *testing.T) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, upstreamConfig, shared.SchedulerKubeconfig(), upstreamName),
		0o644); err != nil {
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

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// dropIns is a directory with one of configuration files for each kubelet, which override the
// cluster's own.
type dropIns string

// quickly makes the kubelet do what takes minutes by default within seconds.
const quickly = `
nodeStatusUpdateFrequency: 2s
containerLogMonitorInterval: 3s
containerLogMaxSize: 64Ki
evictionPressureTransitionPeriod: 1s
volumeStatsAggPeriod: 2s
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
`

func (d dropIns) directory(node string) string { return filepath.Join(string(d), node) }

// set gives a node's kubelet these settings when it starts the next time.
func (d dropIns) set(node, settings string) error {
	content := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + settings
	return errors.Join(
		os.MkdirAll(d.directory(node), 0o755),
		os.WriteFile(filepath.Join(d.directory(node), "10-test.conf"), []byte(content), 0o644),
	)
}

// withSettings kills a node's kubelet, starts it with more settings, and calls then; afterwards, it
// does the same with the previous settings.
func withSettings(ctx context.Context, t *testing.T, node *cluster.Node, more string, then func()) {
	t.Helper()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		if err := errors.Join(settings.set(node.Name, quickly), node.Kubelet.Restart(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(settings.set(node.Name, quickly+more), node.Kubelet.Restart(ctx)); err != nil {
		t.Fatal(err)
	}
	then()
}

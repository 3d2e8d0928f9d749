// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosting tests that vendors' device plugins, as their makers publish them, take kubecri's
// device manager for the kubelet. There is no cluster: the manager runs in the test's own
// process.
package hosting

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// programs is the directory of what was built.
var programs string

func TestMain(m *testing.M) {
	if code, skipped := clustertest.Skipped(); skipped {
		os.Exit(code)
	}
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func build() error {
	options, err := cluster.Default(0)
	if err != nil {
		return err
	}
	programs = options.Programs
	return clustertest.Build(context.Background(), programs, binaries.DevicePlugins)
}

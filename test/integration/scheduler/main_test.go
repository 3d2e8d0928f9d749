// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler_test runs the kube-scheduler command, as a process that can be killed, against
// a real API server. There are no kubelets: nodes are objects, and pods stay where they were bound.
package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/kubedevice/kubedevice/pkg/scheduler"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
	"github.com/kubedevice/kubedevice/test/integration/controlplane"
)

// asScheduler makes this test binary run a scheduler's command instead of the tests: ours or
// upstream.
const (
	asScheduler = "KUBEDEVICE_TEST_RUN_SCHEDULER"
	asOurs      = "ours"
	asUpstream  = "upstream"
)

// startTimeout allows for a busy machine: a quiet one needs five seconds.
const startTimeout = 2 * time.Minute

var server *controlplane.ControlPlane

func TestMain(m *testing.M) {
	switch os.Getenv(asScheduler) {
	case asOurs:
		gpus := gpuscheduler.New("gpus", gpu.Resource)
		os.Exit(cli.Run(scheduler.NewCommand(
			allocation.Named{File: "built in", Plugin: kubeletplugin.New()},
			allocation.Named{File: "gpus.so", Plugin: newPlugin(gpus)},
		)))
	case asUpstream:
		os.Exit(cli.Run(app.NewSchedulerCommand()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	// Pod groups are known to the API server, and, where a test says so, to schedulers.
	if server, err = controlplane.Start(ctx, gangGate, "--runtime-config=scheduling.k8s.io/v1beta1=true"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

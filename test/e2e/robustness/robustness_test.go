// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package robustness plays a sample of what make robustness plays in full.
package robustness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/robustness"
)

func TestMain(m *testing.M) {
	if code, skipped := clustertest.Skipped(); skipped {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestKillingKubecriWhileContainersAreCreatedLosesNothingAndLeavesNothing(t *testing.T) {
	options, err := robustness.Full()
	if err != nil {
		t.Fatal(err)
	}
	options.Points = []failpoint.Point{failpoint.Writing, failpoint.Written, failpoint.Answered}
	options.Kills, options.Creations, options.Upgrades, options.Runtime = 2, 6, false, false
	options.Dir = filepath.Join(filepath.Dir(options.Dir), "e2e-robustness")
	if err := robustness.Run(t.Context(), t.Output(), options); err != nil {
		t.Fatal(err)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package robustness plays a sample of what make robustness plays in full.
package robustness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/robustness"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, nil, nil)) }

func TestKillingKubecriWhileContainersAreCreatedLosesNothingAndLeavesNothing(t *testing.T) {
	options := sample(t, cluster.ModeCRI)
	options.Points = []failpoint.Point{
		failpoint.Writing, failpoint.Written, failpoint.Answered, failpoint.Replaced, failpoint.Releasing,
	}
	options.Kills = 2
	play(t, options)
}

func TestKillingKubecriAsAnNRIPluginLosesNothingAndLeavesNothing(t *testing.T) {
	options := sample(t, cluster.ModeNRI)
	options.Points = []failpoint.Point{failpoint.Written, failpoint.Forwarding}
	options.Kills = 2
	play(t, options)
}

func TestSchedulerAndKubecriWorkWithThePreviousReleaseAndGoBackToIt(t *testing.T) {
	options := sample(t, cluster.ModeCRI)
	options.Releases = true
	play(t, options)
}

// sample returns options of which a test chooses what is played, of few containers.
func sample(t *testing.T, mode cluster.Mode) robustness.Options {
	t.Helper()
	options, err := robustness.Full(mode)
	if err != nil {
		t.Fatal(err)
	}
	return robustness.Options{
		Mode: mode, Creations: 6, Dir: filepath.Join(filepath.Dir(options.Dir), "e2e-"+filepath.Base(options.Dir)),
	}
}

func play(t *testing.T, options robustness.Options) {
	t.Helper()
	if err := robustness.Run(t.Context(), t.Output(), options); err != nil {
		t.Fatal(err)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/enrolments"
)

// A sample of what make enrolment does a hundred times, without its kills, on a cluster of its own.
func TestANodeInUseIsEnrolledAndLeavesWhilePodsComeAndGo(t *testing.T) {
	options, err := enrolments.Full()
	if err != nil {
		t.Fatal(err)
	}
	options.Nodes, options.Rounds, options.Kills = 1, 2, false
	options.Dir = filepath.Join(filepath.Dir(options.Dir), "e2e-enrolments")
	if err := enrolments.Run(t.Context(), t.Output(), options); err != nil {
		t.Fatal(err)
	}
}

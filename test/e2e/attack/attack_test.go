// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attack makes a sample of the attempts that make attack makes, and holds
// test/attack/README.md equal to their table.
package attack

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubedevice/kubedevice/test/attack"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, nil, nil)) }

func TestASampleOfAttemptsIsRefusedAndSucceedsWithoutItsDefence(t *testing.T) {
	for _, mode := range attack.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			options, err := attack.Full()
			if err != nil {
				t.Fatal(err)
			}
			options.Modes, options.Settings = []cluster.Mode{mode}, []attack.Setting{attack.Both, attack.Bare}
			options.Attempts = slices.DeleteFunc(options.Attempts, func(a *attack.Attempt) bool { return !a.Sample })
			options.Dir = filepath.Join(filepath.Dir(options.Dir), "e2e-attack")
			if err := attack.Run(t.Context(), t.Output(), options); err != nil {
				t.Fatal(err)
			}
		})
	}
}

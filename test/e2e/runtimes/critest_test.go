// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/critest"
)

// someSpecs are specs of every kind of call: unary, streaming by URL, images; and what a proxy
// could spoil, such as deadlines and errors.
const someSpecs = `Idempotence|Runtime info|runtime should support execSync|support exec with tty|` +
	`support portforward \[|preserving|listing stats for containers filtered|seccomp default|Image Consistency|` +
	`should timeout if requested`

func TestKubecriMakesNoDifferenceToAnyRuntime(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(root, "_output", "cluster", "bin")
	if err := clustertest.Build(t.Context(), programs, binaries.Critest, binaries.Containerd17); err != nil {
		t.Fatal(err)
	}
	for _, runtime := range []cluster.Runtime{cluster.Containerd24, cluster.Containerd17} {
		t.Run(string(runtime), func(t *testing.T) {
			found, err := critest.Run(t.Context(), critest.Options{
				Runtime: runtime, Focus: someSpecs, Dir: filepath.Join(root, "_output", "e2e-critest"),
				Progress: t.Output(),
			})
			if err != nil {
				t.Fatal(err)
			}
			var table bytes.Buffer
			if err := found.Print(&table); err != nil {
				t.Fatal(err)
			}
			if err := found.Check(); err != nil {
				t.Errorf("%v\n%s", err, &table)
			}
			if len(found.With(critest.Passed)) < 15 {
				t.Errorf("too few specs passed on both sides to show anything:\n%s", &table)
			}
		})
	}
}

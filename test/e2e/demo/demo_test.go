// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo runs the demo as people do, and holds it to what it claims; and it holds what each
// command of kubectl device prints on the demo's cluster, in scripts in testdata.
package demo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/demo"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, nil, nil)) }

// The cluster is kept: the commands that the demo names show what has happened, and all others
// print what the scripts say.
func TestTheDemoShowsTheMainJobAndItsCommandsShowWhatHasHappened(t *testing.T) {
	ctx := t.Context()
	if err := demo.Run(ctx, t.Output(), true); err != nil {
		t.Fatal(err)
	}
	kept, err := demo.Attach()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kept.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	t.Run("named", func(t *testing.T) { testNamedCommands(t, kept) })
	t.Run("scripts", func(t *testing.T) { testScripts(t, kept) })
}

// testNamedCommands runs what the demo prints at its end, in a shell.
func testNamedCommands(t *testing.T, kept *cluster.Cluster) {
	named := demo.Commands(kept)
	for i, test := range []struct {
		status int
		want   []string // parts of what it prints
	}{
		{0, []string{"default/pair/main", "default/quad/main", "default/half-2/main memory 40 GiB"}},
		{0, []string{"pair", "Granted", "too-large", "Waiting"}},
		{1, []string{"default/too-large fits 0 of 2 nodes", "160 GiB"}},
	} {
		said, err := exec.CommandContext(t.Context(), "bash", "-c", demo.Setup(kept)+"; "+named[i]).CombinedOutput()
		status := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(string(said), want) {
				t.Errorf("%s does not print %q", named[i], want)
			}
		}
		if status != test.status {
			t.Errorf("%s: exit status %d, want %d", named[i], status, test.status)
		}
		t.Logf("$ %s\n%s", named[i], said)
	}
	if len(named) != 3 {
		t.Errorf("the demo names %d commands, and 3 are tested", len(named))
	}
}

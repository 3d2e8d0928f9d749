// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo runs the demo as people do, and holds it to what it claims.
package demo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/demo"
)

func TestMain(m *testing.M) {
	if code, skipped := clustertest.Skipped(); skipped {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// The cluster is kept, and the commands that the demo names show what has happened; so do others.
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
	named := demo.Commands(kept)
	at := " --scheduler=" + kept.SchedulerURL()
	for _, test := range []struct {
		command string
		status  int
		want    []string // parts of what it prints
	}{
		{named[0], 0, []string{"default/pair/main", "default/quad/main", "default/half-2/main memory 40 GiB"}},
		{named[1], 0, []string{"pair", "Granted", "too-large", "Waiting"}},
		{named[2], 1, []string{"default/too-large fits 0 of 2 nodes", "160 GiB"}},
		{"kubectl device top", 0, []string{"node-1", "node-2", "<all>"}},
		{"kubectl device fit -f ../../demo/pods/cpu-only.yaml" + at, 0, []string{"cpu-only", "node-"}},
		{"kubectl device whatif -f ../../demo/pods/quad.yaml --without=pod/quad" + at, 0, []string{"quad", "cards 1"}},
		{"kubectl device whatif -f ../../demo/pods/pair.yaml --cordon=node-1 --cordon=node-2" + at, 1,
			[]string{"0 of 1 pods would be placed"}},
		{"kubectl device lint -f ../../demo/pods", 0, nil},
		{"kubectl device schedulers -o name" + at, 0, []string{"scheduler/control-plane-10262"}},
	} {
		shell := exec.CommandContext(ctx, "bash", "-c", demo.Setup(kept)+"; "+test.command)
		said, err := shell.CombinedOutput()
		status := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(string(said), want) {
				t.Errorf("%s does not print %q", test.command, want)
			}
		}
		if status != test.status {
			t.Errorf("%s: exit status %d, want %d", test.command, status, test.status)
		}
		t.Logf("$ %s\n%s", test.command, said)
	}
}

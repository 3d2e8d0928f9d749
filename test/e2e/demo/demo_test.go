// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo runs the demo as people do, and holds it to what it claims.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/demo"
)

func TestMain(m *testing.M) {
	if code, skipped := clustertest.Skipped(); skipped {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

var rewrite = flag.Bool("rewrite", false, "write what the commands print into testdata")

// The cluster is kept, and the commands that the demo names show what has happened.
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
	const file = "testdata/commands.txt"
	want, err := os.ReadFile(file)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	var got strings.Builder
	got.WriteString("What the commands print that \"make demo\" names at its end, and others, on its cluster.\n")
	for _, command := range append(demo.Commands(kept), more(kept)...) {
		shell := exec.CommandContext(ctx, "bash", "-c", demo.Setup(kept)+"; "+command)
		said, err := shell.CombinedOutput()
		fmt.Fprintf(&got, "\n$ %s\n%s", command, said)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			fmt.Fprintf(&got, "[exit status %d]\n", exit.ExitCode())
		} else if err != nil {
			t.Fatal(err)
		}
	}
	shown := strings.ReplaceAll(got.String(), kept.SchedulerURL(), "https://127.0.0.1:PORT")
	shown = ages.ReplaceAllString(shown, "AGE $1")
	if *rewrite {
		if err := os.WriteFile(file, []byte(shown), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), shown); diff != "" {
		t.Errorf("-rewrite takes it over (-want +got):\n%s", diff)
	}
}

// ages are those of pods, with the column behind them.
var ages = regexp.MustCompile(`\b[0-9]+[sm] +([<0-9])`)

// more are the other commands, each of which sees the same cluster.
func more(c *cluster.Cluster) []string {
	at := " --scheduler=" + c.SchedulerURL()
	return []string{
		"kubectl device top",
		"kubectl device nodes node-1 -o wide",
		"kubectl device fit -f ../../demo/pods/quad.yaml" + at,
		"kubectl device whatif -f ../../demo/pods/quad.yaml --replicas=3 --without=pod/quad" + at,
		"kubectl device whatif -f ../../demo/pods/pair.yaml --cordon=node-1 --cordon=node-2/gpu-0" + at,
		"kubectl device lint -f ../../demo/pods",
		"kubectl device schedulers -o name" + at,
	}
}

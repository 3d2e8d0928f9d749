// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo runs the demo as people do, and holds it to what it claims; and it holds what each
// command of kubectl device prints on the demo's cluster, in scripts in testdata.
package demo

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/kubectl/web"
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
	t.Run("readiness", func(t *testing.T) { testReadiness(t, kept) })
	t.Run("named", func(t *testing.T) { testNamedCommands(t, kept) })
	t.Run("scripts", func(t *testing.T) { testScripts(t, kept) })
	t.Run("pages", func(t *testing.T) { testPages(t, kept) })
	t.Run("examples", func(t *testing.T) { testExamples(t, kept) })
}

// testReadiness expects that kubecri has nothing to say against any node.
func testReadiness(t *testing.T, kept *cluster.Cluster) {
	for _, node := range kept.Nodes {
		said, err := node.Get(t.Context(), "/readyz?verbose")
		if err != nil || !strings.Contains(said, "[+]plugins ok") || strings.Contains(said, "[-]") {
			t.Errorf("%s: %v\n%s", node.Name, err, said)
		}
	}
}

// testNamedCommands runs what the demo names at its end, in a shell.
func testNamedCommands(t *testing.T, kept *cluster.Cluster) {
	wanted := map[string][]string{ // parts of what each prints
		"nodes": {"default/pair/main", "default/quad/main", "default/half-2/main memory 40 GiB"},
		"pods":  {"pair", "Granted", "too-large", "Waiting"},
		"top":   {"node-1", "node-2", "<all>    gpu    16        5      1        10"},
		"fit":   {"pair", "cards 1"},
		"why":   {"default/too-large fits 0 of 2 nodes", "160 GiB"},
		"lint":  {"too-large.yaml:7:58: warning: ", "no node has more of it than 80 GiB in one gpu"},
	}
	for _, named := range demo.Commands(kept) {
		name := strings.Fields(named.Line)[2]
		if name == "web" {
			testWeb(t, kept, named)
			continue
		}
		printed, err := named.Run(t.Context(), kept)
		if err != nil {
			t.Error(err)
		}
		for _, want := range wanted[name] {
			if !strings.Contains(printed, want) {
				t.Errorf("%s does not print %q", named.Line, want)
			}
		}
		t.Logf("$ %s\n%s", named.Line, printed)
		delete(wanted, name)
	}
	for name := range wanted {
		t.Errorf("the demo does not name kubectl device %s", name)
	}
}

// testWeb expects that a command serves the map until it is interrupted.
func testWeb(t *testing.T, kept *cluster.Cluster, named demo.Command) {
	if _, err := web.Page(); err != nil && os.Getenv("CI") != "true" {
		t.Log("SKIPPED: kubectl device web: \"make page\" comes first, with Node.js:", err)
		return
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", demo.Setup(kept)+"; exec "+named.Line+" --open=false")
	shell.Stderr = t.Output()
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "http://127.0.0.1:") {
		t.Errorf("%s prints %q (%v), want an address", named.Line, lines.Text(), lines.Err())
	}
	if err := shell.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := shell.Wait(); err != nil {
		t.Errorf("%s after an interruption: %v", named.Line, err)
	}
}

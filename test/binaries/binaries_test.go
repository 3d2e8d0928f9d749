// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a builder with directories of its own and a step that counts how often it runs.
type fixture struct {
	builder
	step step
	runs int
	said bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	w := &fixture{builder: builder{source: t.TempDir(), dir: t.TempDir(), recipes: []string{"recipe"}}}
	write(t, filepath.Join(w.source, "recipe"), "-O2")
	write(t, filepath.Join(w.source, "src", "main.go"), "package main")
	w.step = step{
		name: "tool", outputs: []string{"tool"}, inputs: []string{"src"},
		run: func(_ context.Context, b *builder) error {
			w.runs++
			return os.WriteFile(b.output("tool"), nil, 0o755)
		},
	}
	return w
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (w *fixture) bring(t *testing.T) error {
	w.builder.report = newReport(&w.said, w.step.name)
	return w.builder.bring(t.Context(), w.step)
}

func TestAStepRunsAgainOnlyWhenSomethingItDependsOnHasChanged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, w *fixture)
		again  bool
	}{
		"nothing has changed": {change: func(*testing.T, *fixture) {}},
		"a source has changed": {again: true, change: func(t *testing.T, w *fixture) {
			write(t, filepath.Join(w.source, "src", "main.go"), "package main // changed")
		}},
		"a source has been added": {again: true, change: func(t *testing.T, w *fixture) {
			write(t, filepath.Join(w.source, "src", "more", "more.go"), "package more")
		}},
		"a recipe has changed": {again: true, change: func(t *testing.T, w *fixture) {
			write(t, filepath.Join(w.source, "recipe"), "-O0")
		}},
		"an output is missing": {again: true, change: func(t *testing.T, w *fixture) {
			if err := os.Remove(w.output("tool")); err != nil {
				t.Fatal(err)
			}
		}},
		"a file that is no input has changed": {change: func(t *testing.T, w *fixture) {
			write(t, filepath.Join(w.source, "README"), "changed")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			if err := w.bring(t); err != nil {
				t.Fatal(err)
			}
			test.change(t, w)
			if err := w.bring(t); err != nil {
				t.Fatal(err)
			}
			if again := w.runs == 2; again != test.again {
				t.Errorf("it ran %d times, want it again: %v", w.runs, test.again)
			}
		})
	}
}

func TestAStepThatFailedRunsAgainEvenIfItsOutputIsThere(t *testing.T) {
	w := newFixture(t)
	run := w.step.run
	w.step.run = func(ctx context.Context, b *builder) error { return errors.Join(run(ctx, b), errors.New("broken")) }
	if err := w.bring(t); err == nil {
		t.Fatal("no error")
	}
	w.step.run = run
	if err := w.bring(t); err != nil {
		t.Fatal(err)
	}
	if w.runs != 2 {
		t.Errorf("it ran %d times, want 2", w.runs)
	}
}

func TestAFailingProgramIsReportedWithWhatItSaid(t *testing.T) {
	w := newFixture(t)
	w.step.run = func(ctx context.Context, b *builder) error {
		return b.command(ctx, "sh", "-c", "echo first >&2; printf 'and last' >&2; exit 7")
	}
	err := w.bring(t)
	for _, want := range []string{"sh -c", "exit status 7", "first\nand last"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to contain %q", err, want)
		}
	}
	if said := w.said.String(); !strings.Contains(said, "tool: failed") {
		t.Errorf("progress: %q", said)
	}
}

func TestProgressCountsPackagesButNotDownloads(t *testing.T) {
	var said bytes.Buffer
	r := newReport(&said, "tool")
	r.start()
	r.count("packages")
	for _, piece := range []string{"go: downloading x\nfm", "t\nio\n", "os"} {
		if _, err := r.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	r.end(nil)
	if want := "tool ...\ntool: done 2 packages in 0s\n"; said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}

func TestAnErrorMessageHasTheLastLinesOnly(t *testing.T) {
	r := newReport(&bytes.Buffer{}, "tool")
	for range 1000 {
		if _, err := r.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if lines := bytes.Count(r.tail(), []byte("line")); lines != kept {
		t.Errorf("%d lines, want %d", lines, kept)
	}
}

func TestExtrasAreBuiltOnlyOnRequestAndAfterAllElse(t *testing.T) {
	names := func(planned []step) (names []string) {
		for _, step := range planned {
			names = append(names, step.name)
		}
		return names
	}
	base := names(steps)
	for name, test := range map[string]struct{ chosen, more []string }{
		"none":       {},
		"one":        {chosen: []string{"critest"}, more: []string{"critest"}},
		"two":        {chosen: []string{"critest", "containerd-1.7"}, more: []string{"critest", "containerd-1.7"}},
		"one, twice": {chosen: []string{"critest", "critest"}, more: []string{"critest"}},
		"an unknown": {chosen: []string{"cri-o"}},
	} {
		t.Run(name, func(t *testing.T) {
			var chosen []Extra
			for _, name := range test.chosen {
				chosen = append(chosen, Extra(name))
			}
			planned, err := plan(chosen)
			if unknown := name == "an unknown"; unknown != (err != nil) {
				t.Fatalf("error %v", err)
			} else if unknown {
				return
			}
			if diff := cmp.Diff(append(slices.Clone(base), test.more...), names(planned)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
	if len(names(steps)) != len(base) {
		t.Error("planning changed the steps of every build")
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print into testdata")

// A transcript begins with what it shows. Each command of the form
//
//	$ kubectl device nodes -o wide
//	$ terminal 80: kubectl device nodes
//
// is followed by what it prints on a terminal of that many columns, or in a pipe, then by the lines
// of its standard error, and by its exit status if that is not 0. Trailing blanks are shown as "·".
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d transcripts, %v", len(files), err)
	}
	objects := zoo(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			testTranscript(t, file, func() *fixture { return newFixture(objects...) })
		})
	}
}

// testTranscript tests one transcript, each command on a cluster of its own.
func testTranscript(t *testing.T, file string, cluster func() *fixture) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, line := range introduction(string(content)) {
		got.WriteString(line + "\n")
	}
	for _, line := range commands(string(content)) {
		f := cluster()
		what := line
		var width int
		if n, _ := fmt.Sscanf(line, "terminal %d:", &width); n == 1 {
			f.terminal = columns.Terminal{Tree: true, Color: strings.Contains(line, "color"), Width: width}
			_, what, _ = strings.Cut(line, ": ")
		}
		stdout, stderr, status := f.run(t.Context(), strings.TrimPrefix(what, "kubectl device"))
		fmt.Fprintf(&got, "\n$ %s\n%s", line, visible(stdout))
		for line := range strings.Lines(stderr) {
			fmt.Fprintf(&got, "[stderr] %s", line)
		}
		if status != 0 {
			fmt.Fprintf(&got, "[exit status %d]\n", status)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(content), got.String()); diff != "" {
		t.Errorf("go test ./pkg/kubectl/command -rewrite takes it over (-want +got):\n%s", diff)
	}
}

// visible shows escapes, and blanks at the end of lines.
func visible(text string) string {
	text = strings.ReplaceAll(text, "\x1b", "ESC")
	var shown strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimSuffix(line, "\n")
		trimmed := strings.TrimRight(bare, " ")
		shown.WriteString(trimmed + strings.Repeat("·", len(bare)-len(trimmed)) + "\n")
	}
	return shown.String()
}

// introduction returns the lines before the first command, without the blank one in between.
func introduction(transcript string) []string {
	before, _, _ := strings.Cut(transcript, "\n$ ")
	return strings.Split(strings.TrimSpace(before), "\n")
}

func commands(transcript string) (lines []string) {
	for line := range strings.Lines(transcript) {
		if line, ok := strings.CutPrefix(line, "$ "); ok {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

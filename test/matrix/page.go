// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// Page is the document with the table, in the source tree.
const Page = "docs/deploy/versions.md"

// The lines around the table.
const (
	begin = "<!-- make matrix writes this table. -->\n"
	end   = "<!-- The table ends here. -->\n"
)

// Cells of the table. A story that a version does not have says since when there is one.
const (
	passed  = "passed"
	failure = "**failed**"
	notRun  = "not run"
)

// table is what each story, by its ID, came to in each setting.
type table map[Setting]map[string]string

// titles returns the head of each setting's row, with exact versions.
func titles(ctx context.Context, root string) (map[Setting]string, error) {
	found := map[Setting]string{}
	for _, setting := range Settings() {
		kubernetes, runtime := "third_party/kubernetes-"+string(setting.Kubernetes), "third_party/containerd"
		if setting.Kubernetes == cluster.Kubernetes137 {
			kubernetes = "."
		}
		containerd := "github.com/containerd/containerd/v2"
		if setting.Runtime == cluster.Containerd17 {
			runtime, containerd = "third_party/containerd-1.7", "github.com/containerd/containerd"
		}
		var versions []string
		for _, of := range [][2]string{{kubernetes, "k8s.io/kubernetes"}, {runtime, containerd}} {
			command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", of[1])
			command.Dir = filepath.Join(root, "test", of[0])
			command.Env = append(os.Environ(), "GOWORK=off")
			version, err := command.Output()
			if err != nil {
				return nil, fmt.Errorf("find the version of %s in %s: %w", of[1], command.Dir, err)
			}
			versions = append(versions, strings.TrimPrefix(strings.TrimSpace(string(version)), "v"))
		}
		found[setting] = versions[0] + ", containerd " + versions[1]
	}
	return found, nil
}

// enter writes what a story came to in a setting into the table of a page.
func enter(path string, titles map[Setting]string, setting Setting, story Story, cell string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, old, after, err := cut(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	results := read(old, titles)
	results[setting][story.ID] = cell
	return os.WriteFile(path, []byte(before+begin+results.markdown(titles)+end+after), 0o644)
}

// cut divides a page into what is before its table, the table, and what comes after it.
func cut(page string) (before, table, after string, err error) {
	before, rest, found := strings.Cut(page, begin)
	table, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", "", "", fmt.Errorf("it has no table between the lines %q and %q", begin, end)
	}
	return before, table, after, nil
}

// read returns what a table in Markdown says of the present stories and settings. What it does not
// have was not run.
func read(markdown string, titles map[Setting]string) table {
	cells := map[string]string{}
	var columns []string
	for line := range strings.Lines(markdown) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if columns == nil {
			columns = row
		}
		for i := range min(len(row), len(columns)) {
			cells[row[0]+"|"+columns[i]] = row[i]
		}
	}
	results := table{}
	for _, setting := range Settings() {
		results[setting] = map[string]string{}
		for _, story := range Stories() {
			cell := notRun
			if is := cells[titles[setting]+"|"+story.ID]; is == passed || is == failure {
				cell = is
			}
			if !story.has(setting.Kubernetes) {
				cell = "from " + string(story.Since) + " on"
			}
			results[setting][story.ID] = cell
		}
	}
	return results
}

// markdown returns the table in Markdown, with what its columns stand for in another one.
func (t table) markdown(titles map[Setting]string) string {
	var out strings.Builder
	out.WriteString("| Kubernetes |")
	for _, story := range Stories() {
		fmt.Fprintf(&out, " %s |", story.ID)
	}
	out.WriteString("\n|---|" + strings.Repeat("---|", len(Stories())) + "\n")
	for _, setting := range Settings() {
		fmt.Fprintf(&out, "| %s |", titles[setting])
		for _, story := range Stories() {
			fmt.Fprintf(&out, " %s |", t[setting][story.ID])
		}
		out.WriteString("\n")
	}
	out.WriteString("\n| | what is tested |\n|---|---|\n")
	for _, story := range Stories() {
		fmt.Fprintf(&out, "| %s | %s |\n", story.ID, story.What)
	}
	return out.String()
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
)

func rootAndTitles(t *testing.T) (string, map[Setting]string) {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	all, err := titles(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	return root, all
}

func TestThePageHasEveryVersionAndStoryAndNoneHasFailed(t *testing.T) {
	root, titles := rootAndTitles(t)
	page, err := os.ReadFile(filepath.Join(root, Page))
	if err != nil {
		t.Fatal(err)
	}
	_, written, _, err := cut(string(page))
	if err != nil {
		t.Fatal(err)
	}
	results := read(written, titles)
	if diff := cmp.Diff(results.markdown(titles), written); diff != "" {
		t.Errorf("%s is not the table of this package's stories and of the versions that are built: run make matrix "+
			"(-want +written):\n%s", Page, diff)
	}
	for setting, stories := range results {
		for id, cell := range stories {
			if cell == failure {
				t.Errorf("%s says of %s on %s: %s: run make matrix MATRIX='--only=%s --kubernetes=%s --runtime=%s'",
					Page, id, titles[setting], cell, id, setting.Kubernetes, setting.Runtime)
			}
		}
	}
}

func TestEachTestOfAStoryIsThere(t *testing.T) {
	root, _ := rootAndTitles(t)
	for _, story := range Stories() {
		for directory, tests := range story.Tests {
			files, err := filepath.Glob(filepath.Join(root, "test", "e2e", directory, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			var sources strings.Builder
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				sources.Write(content)
			}
			for _, test := range tests {
				if !strings.Contains(sources.String(), "\nfunc "+test+"(t *testing.T) {") {
					t.Errorf("story %s: test/e2e/%s has no test %s", story.ID, directory, test)
				}
			}
		}
	}
}

func TestAResultIsEnteredAndTheOthersStay(t *testing.T) {
	titles := map[Setting]string{}
	for i, setting := range Settings() {
		titles[setting] = "v" + strings.Repeat("i", i)
	}
	path := filepath.Join(t.TempDir(), "page.md")
	page := "# Versions\n" + begin + end + "after\n"
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	old, newest := Settings()[0], Settings()[len(Settings())-1]
	groups := Story{ID: "groups", Since: cluster.Kubernetes137}
	for _, result := range []struct {
		setting Setting
		story   Story
		cell    string
	}{
		{old, Story{ID: "job"}, failure}, {newest, groups, passed}, {old, Story{ID: "job"}, passed},
		{old, Story{ID: "hosted"}, failure},
	} {
		if err := enter(path, titles, result.setting, result.story, result.cell); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, written, after, err := cut(string(content))
	if err != nil || before != "# Versions\n" || after != "after\n" {
		t.Errorf("around the table: %q, %q, %v", before, after, err)
	}
	got := read(written, titles)
	want := map[string]string{"job": passed, "hosted": failure, "groups": "from 1.37 on", "restarts": notRun}
	for id, cell := range want {
		if got[old][id] != cell {
			t.Errorf("%s on the oldest: %s, want %s", id, got[old][id], cell)
		}
	}
	if cell := got[newest]["groups"]; cell != passed {
		t.Errorf("groups on the newest: %s", cell)
	}
}

func TestATestThatDoesNotRunHasNotPassed(t *testing.T) {
	var log strings.Builder
	results := readResults(strings.NewReader(`{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"said\n"}
{"Action":"pass","Test":"TestA/part"}
{"Action":"fail","Test":"TestA"}
not JSON
{"Action":"skip","Test":"TestB"}
{"Action":"pass"}
`), &log)
	want := map[string]string{"TestA": "fail", "TestA/part": "pass", "TestB": "skip"}
	if diff := cmp.Diff(want, results); diff != "" || log.String() != "said\n" {
		t.Errorf("results (-want +got):\n%s\nlog: %q", diff, log.String())
	}
}

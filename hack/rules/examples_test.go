// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// examples is the directory of the manifests that a page shows, each whole.
const examples, examplesPage = "deploy/examples", "docs/get-started/request-devices.md"

// What a reader copies from the page is what tests lint and run.
func TestThePageOfRequestsShowsTheExamplesAsTheyAre(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, examples, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no manifests: %v", examples, err)
	}
	page, err := os.ReadFile(filepath.Join(root, examplesPage))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, b := range blocks(string(page)) {
		if b.language == "yaml" {
			shown[b.text] = true
		}
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if !strings.Contains(string(manifest), "\nmetadata:\n  name: "+name+"\n") {
			t.Errorf("%s/%s.yaml: its object has another name", examples, name)
		}
		if !shown[string(manifest)] {
			t.Errorf("%s does not show %s/%s.yaml as it is", examplesPage, examples, name)
		}
		delete(shown, string(manifest))
	}
	for manifest := range shown {
		if strings.HasPrefix(manifest, "apiVersion:") {
			t.Errorf("%s shows a manifest that is none of %s:\n%s", examplesPage, examples, manifest)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// documents returns the texts of all documents, by their path from the repository's root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "_output" || entry.Name() == ".git" || entry.Name() == modules) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			found[name] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 5 {
		t.Fatalf("found %d documents: not the repository?", len(found))
	}
	return found
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]+))?\)`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`\]\([^)]*\)|[^\p{L}\p{N}_ -]`)
)

// anchors returns the names by which links reach the headings of a document, as GitHub makes them.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		plain := strings.ToLower(dropped.ReplaceAllString(match[1], ""))
		names[strings.ReplaceAll(plain, " ", "-")] = true
	}
	return names
}

func TestLinksInDocumentsHaveATarget(t *testing.T) {
	all := documents(t)
	for name, text := range all {
		for _, match := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target := name
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(name), match[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, match[1])
			} else if document, ok := all[target]; ok && match[2] != "" && !anchors(document)[match[2]] {
				t.Errorf("%s links to %s#%s, which has no such heading", name, match[1], match[2])
			}
		}
	}
}

// A reader who has just arrived chooses among few pages.
func TestTheReadmeHasTenLinksAtMost(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?:^|[^!])\[[^\]]*\]\(`).FindAllString(string(text), -1) // without pictures
	if len(found) == 0 || len(found) > 10 {
		t.Errorf("README.md has %d links: have those that a reader needs first, ten at most", len(found))
	}
}

// A page that no other page links to is not found by readers.
func TestEachPageIsReachedFromTheIndex(t *testing.T) {
	all := documents(t)
	index := filepath.Join(root, "docs", "README.md")
	reached, next := map[string]bool{index: true}, []string{index}
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		for _, match := range link.FindAllStringSubmatch(fenced.ReplaceAllString(all[name], ""), -1) {
			target := filepath.Join(filepath.Dir(name), match[1])
			if _, ok := all[target]; ok && !reached[target] {
				reached[target] = true
				next = append(next, target)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, filepath.Join(root, "docs")) && !reached[name] {
			t.Errorf("no link leads from docs/README.md to %s", name)
		}
	}
}

func TestThePageOfPoliciesNamesEachThatIsInstalled(t *testing.T) {
	page := documents(t)[filepath.Join(root, "docs", "reference", "policies.md")]
	files, err := filepath.Glob(filepath.Join(root, "deploy", "policies", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d policies: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("docs/reference/policies.md has no row for %s", name)
		}
	}
}

var (
	makeCommand = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)")
	makeTarget  = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):.*##`)
)

func TestDocumentsNameTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, match := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets[match[1]] = true
	}
	for name, text := range documents(t) {
		for _, match := range makeCommand.FindAllStringSubmatch(text, -1) {
			if !targets[match[1]] {
				t.Errorf("%s says \"make %s\", which is not a target of the Makefile", name, match[1])
			}
		}
	}
}

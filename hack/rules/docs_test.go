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

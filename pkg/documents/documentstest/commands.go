// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package documentstest holds documents to the programs: it finds the commands that they tell
// readers to type, for the tests of the programs that would read them, and compares the pages that
// tests write. It is for tests alone.
package documentstest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Command is one that a document has, in a block or within a sentence.
type Command struct {
	Page string   // from the repository's root
	Args []string // behind the program's name, without what a shell would read
}

var (
	fence = regexp.MustCompile("(?ms)^ *```(\\S*)\n(.*?)^ *```")
	span  = regexp.MustCompile("`([^`]+)`")
	// shell is where a command ends: at a pipe, a redirection, the next command, a comment.
	shell = regexp.MustCompile(`\s(?:[|>&;#]|&&|2>).*$|[;)].*$`)
)

// Commands returns all commands of a program in the documents of a repository, such as "kubectl
// device". root is the repository's directory.
func Commands(t testing.TB, root, program string) []Command {
	t.Helper()
	var found []Command
	add := func(page, text string) {
		if rest, ok := strings.CutPrefix(text, program+" "); ok {
			found = append(found, Command{page, strings.Fields(shell.ReplaceAllString(rest, ""))})
		}
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "_output" ||
			entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" || entry.Name() == "CHANGELOG.md" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page := strings.TrimPrefix(path, root+string(filepath.Separator))
		for _, block := range fence.FindAllStringSubmatch(string(content), -1) {
			if block[1] != "sh" && block[1] != "console" {
				continue
			}
			for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", " ")) {
				add(page, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
			}
		}
		for _, code := range span.FindAllStringSubmatch(fence.ReplaceAllString(string(content), ""), -1) {
			add(page, strings.Join(strings.Fields(code[1]), " "))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("the documents have %d commands of %s: is %s the repository?", len(found), program, root)
	}
	return found
}

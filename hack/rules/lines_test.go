// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Lengths in columns. A tab in Go counts as four.
const (
	maxLine    = 120 // of Go and of Markdown
	maxComment = 100 // of a line of Go that is a comment and nothing else
)

// linkTarget is the address of a link in Markdown: it does not count in a row of a table.
var linkTarget = regexp.MustCompile(`\]\([^)]*\)`)

func TestLinesAreNotTooLong(t *testing.T) {
	var files []string
	for _, s := range sources(t) {
		files = append(files, s.path)
	}
	for name := range documents(t) {
		relative, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.ToSlash(relative))
	}
	for _, file := range files {
		for number, columns := range longLines(t, file) {
			t.Errorf("%s:%d has %d columns: at most %d, and %d for a comment in Go",
				file, number, columns, maxLine, maxComment)
		}
	}
}

// longLines returns the columns of the lines of a file that are too long, by their number.
func longLines(t *testing.T, file string) map[int]int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]int{}
	lines := bufio.NewScanner(strings.NewReader(string(content)))
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if strings.HasSuffix(file, ".md") && strings.HasPrefix(line, "|") {
			line = linkTarget.ReplaceAllString(line, "]") // a row cannot be broken
		}
		text := strings.TrimSpace(line)
		limit := maxLine
		if comment, ok := strings.CutPrefix(text, "// "); ok && strings.HasSuffix(file, ".go") {
			text, limit = comment, maxComment
		}
		columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if columns > limit && strings.Contains(text, " ") { // one word cannot be broken
			found[number] = columns
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

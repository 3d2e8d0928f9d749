// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package documentstest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Generated fails the test if a page that the test writes is another one: with rewrite, it writes
// the page. The command takes the text over, and stands in the error.
func Generated(t testing.TB, page, text string, rewrite bool, command string) {
	t.Helper()
	if rewrite {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(written)); diff != "" {
		t.Errorf("%s is another one: run %s\n(-want +got):\n%s", page, command, diff)
	}
}

// Item returns an item of a list in Markdown, broken into lines of at most 120 columns.
func Item(line string) string {
	const columns = 120
	var text strings.Builder
	for len(line) > columns {
		at := strings.LastIndexByte(line[:columns+1], ' ')
		text.WriteString(line[:at] + "\n")
		line = "  " + line[at+1:]
	}
	return text.String() + line + "\n"
}

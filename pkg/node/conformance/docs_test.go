// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// page is the documentation of the checks.
const page = "../../../docs/vendors/plugin-checks.md"

var rewrite = flag.Bool("rewrite", false, "write "+page)

func TestTheDocumentationHasEachCheck(t *testing.T) {
	var text strings.Builder
	text.WriteString("# What `kubecri plugin test` checks\n\n" +
		"The [tests](../../pkg/node/conformance) write this page. [Test it](plugins.md#test-it) says how to run\n" +
		"them. For a check that fails, the program prints what to do.\n")
	for _, kind := range Kinds() {
		fmt.Fprintf(&text, "\n## %s\n\n", strings.ToUpper(kind.Name[:1])+kind.Name[1:])
		for _, check := range kind.Checks {
			text.WriteString(wrapped(fmt.Sprintf("- **%s**: %s", check.Name, check.About)))
		}
	}
	if *rewrite {
		if err := os.WriteFile(page, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text.String(), string(written)); diff != "" {
		t.Errorf("docs/vendors/plugin-checks.md is another one: run go test ./pkg/node/conformance -run Documentation "+
			"-rewrite\n"+
			"(-want +got):\n%s", diff)
	}
}

// wrapped breaks the line of a list into lines of at most 120 columns.
func wrapped(line string) string {
	const columns = 120
	var text strings.Builder
	for len(line) > columns {
		at := strings.LastIndexByte(line[:columns+1], ' ')
		text.WriteString(line[:at] + "\n")
		line = "  " + line[at+1:]
	}
	return text.String() + line + "\n"
}

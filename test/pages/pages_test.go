// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocksAreFoundByTheirMark(t *testing.T) {
	const page = "# A page\n\n<!-- run by test/a -->\n```sh\none \\\n  --two\nthree\n```\n\n" +
		"<!-- run by test/b -->\n```sh\nfour\n```\n\n- in a list:\n\n  <!-- run by test/a -->\n" +
		"  ```console\n  $ five\n  what it prints\n  $ six\n  ```\n\n```text\nseven\n```\n"
	want := []Block{
		{Page: "a.md", Line: 3, Script: "one \\\n  --two\nthree\n"},
		{Page: "a.md", Line: 17, Script: "five\nsix\n"},
	}
	if diff := cmp.Diff(want, marked("a.md", page, "test/a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is what a document has in a fence.
type block struct {
	mark     string // the comment in the line before it
	language string
	text     string
}

// blocks returns those of a document, in order.
func blocks(text string) []block {
	var found []block
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		language, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), "```")
		if !ok {
			continue
		}
		b := block{language: language}
		if i > 0 {
			b.mark = strings.TrimSpace(lines[i-1])
		}
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			b.text += lines[i] + "\n"
		}
		found = append(found, b)
	}
	return found
}

var (
	// languages are those of a block: sh has commands, console has them with what they print.
	languages = map[string]bool{
		"sh": true, "console": true, "yaml": true, "json": true, "toml": true, "ini": true, "go": true, "promql": true,
		"text": true,
	}
	// commandLine is a line that a reader is to type.
	commandLine = regexp.MustCompile(`(?m)^\s*(?:\$ |(?:apt|cosign|crane|ctr|curl|git|go|helm|install|kubeadm|` +
		`kubecri|kubectl|make|openssl|sed|skopeo|systemctl|tar) )`)
	// indented is one outside of a fence, which has no place for a mark.
	indented = regexp.MustCompile(`(?m)^(?: {4,}|\t)(?:\$ |(?:go|helm|kubecri|kubectl|make) )`)
	run      = regexp.MustCompile(`^<!-- run by (\S+) -->$`)
	notRun   = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	// runs is how the code of a test names a page that it reads, or that it runs all blocks that
	// name it.
	runs = regexp.MustCompile(`"([\w./-]+\.md)"|pages\.MarkedFor\(`)
)

// problems returns what is wrong with the blocks of a document. runsBlocks says whether the tests
// of a directory run the blocks of a document that name it.
func problems(name, text string, runsBlocks func(directory, document string) bool) []string {
	var found []string
	for _, b := range blocks(text) {
		first, _, _ := strings.Cut(b.text, "\n")
		commands := b.language == "sh" || b.language == "console"
		switch by, reason := run.FindStringSubmatch(b.mark), notRun.FindStringSubmatch(b.mark); {
		case !languages[b.language]:
			found = append(found, "has the language \""+b.language+"\": sh, console, text, yaml … ("+first+")")
		case !commands && (by != nil || reason != nil):
			found = append(found, "has a mark, but is no block of commands: sh or console ("+first+")")
		case !commands:
			if b.language == "text" && commandLine.MatchString(b.text) {
				found = append(found, "has commands, and needs the language sh or console ("+first+")")
			}
		case by == nil && reason == nil:
			found = append(found, "needs a mark in the line before it, \"<!-- run by test/DIRECTORY -->\" or "+
				"\"<!-- not run: REASON -->\" ("+first+")")
		case by != nil && !runsBlocks(by[1], name):
			found = append(found, "is not run by "+by[1]+": no test there reads this page, or all blocks with its "+
				"mark ("+first+")")
		case reason != nil && len(strings.Fields(reason[1])) < 3:
			found = append(found, "needs a reason in a sentence ("+first+")")
		}
	}
	for _, line := range indented.FindAllString(fenced.ReplaceAllString(text, ""), -1) {
		found = append(found, "is indented, and needs a fence with a mark ("+strings.TrimSpace(line)+" …)")
	}
	return found
}

// runsBlocks reports whether the tests of a directory read a document, or all blocks that name it.
func runsBlocks(t *testing.T) func(directory, document string) bool {
	return func(directory, document string) bool {
		tests, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(directory), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			code, err := os.ReadFile(test)
			if err != nil {
				t.Fatal(err)
			}
			if reads(string(code), document) {
				return true
			}
		}
		return false
	}
}

// reads reports whether the code of a test reads a document: it names the document's path, or the
// end of it, or it runs all marked blocks, which are those of docs.
func reads(code, document string) bool {
	document = strings.TrimPrefix(filepath.ToSlash(document), root+"/")
	for _, match := range runs.FindAllStringSubmatch(code, -1) {
		named := strings.TrimLeft(match[1], "./")
		if named == "" && strings.HasPrefix(document, "docs/") ||
			named == document || named != "" && strings.HasSuffix(document, "/"+named) {
			return true
		}
	}
	return false
}

// A command that no test runs goes stale: where that is so, the document's source has the reason.
func TestCommandsInDocumentsAreRunOrSayWhyNot(t *testing.T) {
	ran, others := 0, 0
	for name, text := range documents(t) {
		for _, problem := range problems(name, text, runsBlocks(t)) {
			t.Errorf("%s: a block %s", name, problem)
		}
		for _, b := range blocks(text) {
			switch {
			case run.MatchString(b.mark):
				ran++
			case notRun.MatchString(b.mark):
				others++
			}
		}
	}
	t.Logf("%d blocks of commands are run by tests, and %d say why not", ran, others)
}

// What a reason names exists.
func TestReasonsInDocumentsNameFilesThatExist(t *testing.T) {
	path := regexp.MustCompile(`(?:test|hack|pkg)/[\w/]+\w`)
	for name, text := range documents(t) {
		for _, b := range blocks(text) {
			for _, named := range path.FindAllString(b.mark, -1) {
				if _, err := os.Stat(filepath.Join(root, named)); err != nil {
					t.Errorf("%s names %s, which does not exist", name, named)
				}
			}
		}
	}
}

func TestATestReadsThePagesThatItNamesAndAllMarkedBlocksOfDocs(t *testing.T) {
	for _, test := range []struct {
		code, document string
		want           bool
	}{
		{`pages.MarkedFor(root, "test/e2e/guides")`, root + "/docs/use/seals.md", true},
		{`pages.MarkedFor(root, "test/e2e/guides")`, root + "/plugins/gpu/README.md", false},
		{`pages.MarkedFor(root, "test/e2e/guides")`, root + "/README.md", false},
		{`os.ReadFile("../../plugins/template/README.md")`, root + "/plugins/template/README.md", true},
		{`os.ReadFile("../../plugins/template/README.md")`, root + "/plugins/gpu/README.md", false},
		{`readGuide(t, "kubeadm.md", node.Name)`, root + "/docs/deploy/kubeadm.md", true},
		{`readGuide(t, "adm.md", node.Name)`, root + "/docs/deploy/kubeadm.md", false},
		{`os.ReadFile("../../README.md")`, root + "/README.md", true},
		{`no page at all`, root + "/docs/use/seals.md", false},
	} {
		if got := reads(test.code, test.document); got != test.want {
			t.Errorf("%s and %s: %t, want %t", test.code, test.document, got, test.want)
		}
	}
}

func TestBlocksWithoutAMarkAreFound(t *testing.T) {
	reads := func(directory, _ string) bool { return directory == "test/e2e/guides" }
	for text, want := range map[string]string{
		"<!-- run by test/e2e/guides -->\n```sh\nmake\n```":      "",
		"<!-- not run: it takes hours -->\n```sh\nmake\n```":     "",
		"```yaml\nkind: Pod\n```":                                "",
		"```text\n0/1 nodes\n```":                                "",
		"```sh\nmake\n```":                                       "needs a mark",
		"<!-- run by test/e2e/none -->\n```sh\nmake\n```":        "is not run by test/e2e/none",
		"<!-- not run: later -->\n```sh\nmake\n```":              "needs a reason",
		"```\nkubectl get pods\n```":                             `has the language ""`,
		"```text\nkubectl get pods\n```":                         "has commands",
		"<!-- not run: it takes hours -->\n```text\nmade\n```":   "has a mark",
		"- a list\n\n      kubectl get pods\n":                   "is indented",
		"<!-- run by test/e2e/guides -->\n\n```sh\nls\n```\nEnd": "needs a mark",
	} {
		found := problems("docs/a.md", text, reads)
		if len(found) > 1 || (len(found) == 0) != (want == "") || !strings.Contains(strings.Join(found, ""), want) {
			t.Errorf("%q: %q, want %q", text, found, want)
		}
	}
}

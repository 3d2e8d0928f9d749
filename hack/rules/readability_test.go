// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readable are the texts that a new user reads first, with limits that only go down.
var readable = []struct {
	name      string
	text      func(*testing.T) string
	maxLength float64 // words of a sentence, on average
	maxShare  float64 // of sentences in the passive voice, in percent
}{
	{"README", func(t *testing.T) string { return proseOf(t, "README.md") }, 15, 15},
	{"get-started", func(t *testing.T) string { return proseOf(t, "docs/get-started/*.md") }, 15, 15},
	{"help texts", helpTexts, 15, 25},
}

// maxWords is how many words all documents may have together, without those that programs write.
const maxWords = 50_000

// generated are the documents that programs write.
var generated = map[string]bool{
	"docs/reference/chart-values.md": true, "docs/reference/flags.md": true, "docs/reference/kubecri-fields.md": true,
	"docs/vendors/plugin-checks.md": true,
}

func TestFirstTextsAreReadable(t *testing.T) {
	for _, r := range readable {
		f := measure(r.text(t))
		t.Logf("%-12s %s", r.name, f)
		if f.sentences == 0 {
			t.Errorf("%s has no sentence", r.name)
		}
		if f.length() > r.maxLength || f.passiveShare() > r.maxShare {
			t.Errorf("%s has %s: at most %.0f words a sentence and %.0f %% in the passive voice. Write subject, verb, "+
				"object; split what has more than one idea", r.name, f, r.maxLength, r.maxShare)
		}
	}
}

func TestDocumentsStayShort(t *testing.T) {
	words := 0
	for name, text := range documents(t) {
		name = filepath.ToSlash(strings.TrimPrefix(name, root+"/"))
		if (name == "README.md" || strings.HasPrefix(name, "docs/")) && !generated[name] {
			words += len(strings.Fields(comment.ReplaceAllString(text, "")))
		}
	}
	t.Logf("README and docs have %d words", words)
	if words > maxWords {
		t.Errorf("README and docs have %d words, and may have %d: shorten a page, or put a measurement into "+
			"docs/lab in fewer words", words, maxWords)
	}
}

// comment is what readers do not see.
var comment = regexp.MustCompile(`(?s)<!--.*?-->`)

// figures are what is measured of a text.
type figures struct{ words, sentences, passive int }

func (f figures) length() float64 { return float64(f.words) / float64(max(f.sentences, 1)) }
func (f figures) passiveShare() float64 {
	return 100 * float64(f.passive) / float64(max(f.sentences, 1))
}

func (f figures) String() string {
	return fmt.Sprintf("%d words, %.1f a sentence, %.0f %% of %d sentences in the passive voice",
		f.words, f.length(), f.passiveShare(), f.sentences)
}

// participles are those of the irregular verbs that documents need.
const participles = "written|chosen|taken|given|made|held|kept|known|seen|shown|found|done|sent|read|set|built|bound|" +
	"left|lost|met|put|run|begun|drawn|hidden|cut|thrown|broken|sold|bought|brought|caught|led"

var (
	sentenceEnd = regexp.MustCompile(`[.!?](?:["')*]*)(?:\s+|$)`)
	linkText    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
	listItem    = regexp.MustCompile(`(?m)^\s*(?:[-*]|\d+\.) `)
	htmlLine    = regexp.MustCompile(`(?m)^\s*<.*$`)
	tableOrHead = regexp.MustCompile(`(?m)^\s*(?:\||#).*$`)
	// passive is a form of "be" with a participle behind it. What looks like one and is an
	// adjective counts too: the figure compares a text with what it was.
	passive = regexp.MustCompile(`(?i)\b(?:is|are|was|were|be|been|being)\s+` +
		`(?:(?:not|never|only|also|then|\w+ly)\s+)*(?:\w\w+ed|` + participles + `)\b`)
)

// measure counts the words and the sentences of paragraphs, which empty lines divide. Code in a
// sentence is one word.
func measure(text string) figures {
	var f figures
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraph = codeSpan.ReplaceAllString(linkText.ReplaceAllString(paragraph, "$1"), "code")
		for _, sentence := range sentenceEnd.Split(paragraph, -1) {
			words := len(strings.Fields(sentence))
			if words < 2 { // the rest of a path, or a label
				continue
			}
			f.words += words
			f.sentences++
			if passive.MatchString(sentence) {
				f.passive++
			}
		}
	}
	return f
}

// proseOf returns the paragraphs of documents, without code, tables, headings and HTML. An item of
// a list is a paragraph.
func proseOf(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := fenced.ReplaceAllString(string(content), "")
		text = htmlLine.ReplaceAllString(tableOrHead.ReplaceAllString(text, ""), "")
		all = append(all, listItem.ReplaceAllString(text, "\n\n"))
	}
	return strings.Join(all, "\n\n")
}

// helpTexts returns what commands say of themselves: the fields Short and Long of cobra's commands,
// as far as they are literals.
func helpTexts(t *testing.T) string {
	var all []string
	for _, s := range sources(t) {
		if s.test() || !within(s.directory(), "pkg") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			field, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			if name, ok := field.Key.(*ast.Ident); ok && (name.Name == "Short" || name.Name == "Long") {
				if text := literal(field.Value); text != "" {
					all = append(all, listItem.ReplaceAllString(text, "\n\n"))
				}
			}
			return true
		})
	}
	return strings.Join(all, "\n\n")
}

// literal returns the text of a string that is written in the source, without what is computed.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	case *ast.CallExpr:
		if len(e.Args) > 0 {
			return literal(e.Args[0])
		}
	}
	return ""
}

func TestSentencesAndPassivesAreCounted(t *testing.T) {
	for text, want := range map[string]figures{
		"The node reads it. The pod waits until it ends.": {10, 2, 0},
		"It is written\nonce, by `kubectl x -y`.":         {6, 1, 1},
		"See [the page](a.md). Done.":                     {3, 1, 0},
		"One line\n\nand another one":                     {5, 2, 0},
		"Pods are not scheduled there, it was never red.": {9, 1, 1},
		"The light was red.":                              {4, 1, 0},
	} {
		if diff := cmp.Diff(want, measure(text), cmp.AllowUnexported(figures{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

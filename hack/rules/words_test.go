// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "lower the recorded counts of words to what the text has now")

// recorded is the file of counts: lines with an area, a word and a count. A count only goes down;
// edit the file by hand when a directory moves.
const recorded = "testdata/words.txt"

// lowerCounts is the command that lowers the recorded counts.
const lowerCounts = "go test ./hack/rules -run TestText -update"

// avoided are words that readers from other projects do not expect, with what to write instead. The
// other forms of a word count as the word.
var avoided = []struct {
	word, better string
	forms        []string
}{
	{"nobody", `the passive voice, "no pod", "no user", "no other program"`, nil},
	{"whoever", `the agent: "the caller", "a user who …"`, nil},
	{"whatever", `the condition: "at any …", "also when …"`, nil},
	{"beside", `"next to", "together with", "in addition to", "compared with"`, nil},
	{"anew", `"again"`, nil},
	{"patience", `"timeout"`, nil},
	{"told", `"notified", or what happens: "the pod gets an event"`, nil},
	{"tells", `"reports", "shows"`, nil},
	{"mend", `"fix", "repair"`, []string{"mends", "mended", "mending"}},
	{"stand-in", `"placeholder plugin", "fake" of hardware`, []string{"standin", "standins", "stand-ins"}},
	{"wish", `"request"`, []string{"wishes", "wished"}},
	{"sick", `"unhealthy"`, nil},
	{"doubtful", `"unverified"`, nil},
	{"aside", `"quarantined", "separately"`, nil},
	{"of before", `"previous"`, nil},
	{"ask", `"request", "query", "call"`, []string{"asks", "asked", "asking"}},
	{"front", `"frontend"`, []string{"fronts"}},
	{"gift", `"injection"`, []string{"gifts"}},
	{"somebody", `the agent: "another user", "an administrator"`, nil},
	{"in vain", `"without success"`, nil},
	{"follower", `"controller"`, []string{"followers"}},
	{"keeper", `"controller"`, []string{"keepers"}},
}

// scanned are the endings of the files whose text counts, and names of files without one.
var scanned = []string{
	".go", ".md", ".ts", ".tsx", ".yaml", ".sh", ".c", ".h", ".html", "Makefile", "run",
}

// exempt are files that do not count: this one, what was released, and what is generated.
var exempt = []string{"hack/rules/words_test.go", "CHANGELOG.md", "test/attack/README.md", "docs/reference/flags.md"}

// occurrence is a line that has an avoided word.
type occurrence struct {
	file string
	line int
}

// count is what is counted: a word in an area of the repository.
type count struct{ area, word string }

func TestTextHasNoMoreOfTheAvoidedWords(t *testing.T) {
	found := occurrences(t)
	allowed, exists := readCounts(t)
	if *update {
		writeCounts(t, lowered(found, allowed, exists))
		allowed, _ = readCounts(t)
	}
	better := map[string]string{}
	for _, entry := range avoided {
		better[entry.word] = entry.better
	}
	for _, key := range sortedCounts(found, allowed) {
		switch have, most := len(found[key]), allowed[key]; {
		case have > most:
			for _, at := range found[key] {
				t.Errorf("%s:%d: %q: write %s (%s has it %d times, %d are recorded: one of the lines that "+
					"this test names is new)", at.file, at.line, key.word, better[key.word], key.area, have, most)
			}
		case have < most:
			t.Errorf("%s has %q %d times, and %d are recorded: lower that with %q",
				key.area, key.word, have, most, lowerCounts)
		}
	}
}

// lowered returns the counts to record: none is raised, unless no counts are recorded at all.
func lowered(found map[count][]occurrence, allowed map[count]int, exists bool) map[count]int {
	next := map[count]int{}
	for key, at := range found {
		if number := len(at); !exists {
			next[key] = number
		} else if number = min(number, allowed[key]); number > 0 {
			next[key] = number
		}
	}
	return next
}

func sortedCounts(found map[count][]occurrence, allowed map[count]int) []count {
	keys := map[count]bool{}
	for key := range found {
		keys[key] = true
	}
	for key := range allowed {
		keys[key] = true
	}
	return slices.SortedFunc(maps.Keys(keys), func(a, b count) int {
		return strings.Compare(a.area+"\t"+a.word, b.area+"\t"+b.word)
	})
}

// occurrences returns the lines of the tracked files that have an avoided word.
func occurrences(t *testing.T) map[count][]occurrence {
	t.Helper()
	output, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("list the tracked files: %v", err)
		}
		t.Skipf("no checkout of the repository: %v", err)
	}
	found := map[count][]occurrence{}
	for _, file := range strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		if !isScanned(file) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range bytes.Lines(content) {
			number++
			for _, word := range avoidedIn(string(line)) {
				key := count{areaOf(file), word}
				found[key] = append(found[key], occurrence{file, number})
			}
		}
	}
	return found
}

// isScanned reports whether a file's text counts.
func isScanned(file string) bool {
	kind := path.Ext(file)
	if kind == "" {
		kind = path.Base(file)
	}
	return slices.Contains(scanned, kind) && !slices.Contains(exempt, file)
}

// areaOf returns the directory to which a file's words count: a package of the programs, a module's
// or a test's directory, all of docs, or "." at the top.
func areaOf(file string) string {
	parts := strings.Split(path.Dir(file), "/")
	depth := 2
	switch {
	case parts[0] == "docs":
		depth = 1
	case parts[0] == "pkg" && len(parts) > 2:
		depth = 3
	}
	return strings.Join(parts[:min(depth, len(parts))], "/")
}

// avoidedForms are the words to avoid by each of their forms.
var avoidedForms = func() map[string]string {
	forms := map[string]string{}
	for _, entry := range avoided {
		forms[entry.word] = entry.word
		for _, form := range entry.forms {
			forms[form] = entry.word
		}
	}
	return forms
}()

// avoidedIn returns the avoided words of a line, also those in identifiers such as awaitNobody. A
// hyphen, a space or nothing at all may be between the two words of a form.
func avoidedIn(line string) []string {
	var found []string
	last, end := "", -1 // the word before, in lower case, and where it ends
	for i := 0; i < len(line); {
		if !letter(line[i]) {
			i++
			continue
		}
		begin := i
		i = wordEnd(line, i)
		word := strings.ToLower(line[begin:i])
		avoided, ok := avoidedForms[word]
		if !ok && end >= 0 && begin-end <= 1 {
			avoided, ok = avoidedForms[last+line[end:begin]+word]
		}
		if ok {
			found = append(found, avoided)
		}
		last, end = word, i
	}
	return found
}

// wordEnd returns where the word ends that begins at i: before the next capital letter, or with a
// run of capital letters.
func wordEnd(line string, i int) int {
	begin := i
	for i < len(line) && upper(line[i]) {
		i++
	}
	if i-begin > 1 {
		return i
	}
	for i < len(line) && letter(line[i]) && !upper(line[i]) {
		i++
	}
	return i
}

func upper(c byte) bool  { return 'A' <= c && c <= 'Z' }
func letter(c byte) bool { return upper(c) || 'a' <= c && c <= 'z' }

// readCounts returns the recorded counts, and whether there are any.
func readCounts(t *testing.T) (counts map[count]int, exists bool) {
	t.Helper()
	content, err := os.ReadFile(recorded)
	if os.IsNotExist(err) {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	counts = map[count]int{}
	for line := range strings.Lines(string(content)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		number := 0
		if len(columns) == 3 {
			_, err = fmt.Sscan(columns[2], &number)
		}
		if err != nil || number == 0 {
			t.Fatalf("%s: %q is not an area, a word and a count with tabs between them", recorded, line)
		}
		counts[count{columns[0], columns[1]}] = number
	}
	return counts, true
}

func writeCounts(t *testing.T, counts map[count]int) {
	t.Helper()
	var text strings.Builder
	for _, key := range sortedCounts(nil, counts) {
		fmt.Fprintf(&text, "%s\t%s\t%d\n", key.area, key.word, counts[key])
	}
	if err := os.MkdirAll(filepath.Dir(recorded), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAvoidedWordsAreFoundInProseAndIdentifiers(t *testing.T) {
	for line, want := range map[string][]string{
		"Nobody has it, whatever it is.":        {"nobody", "whatever"},
		"func TestADeviceBesideAnother(t *T) {": {"beside"},
		"awaitNobody(besideWhatIfs)":            {"nobody", "beside"},
		"a stand-in, a standIn, StandIns":       {"stand-in", "stand-in", "stand-in"},
		"what must stand in the refusal":        nil,
		"kubedevice.io/stand-in":                {"stand-in"},
		"the keys of before, mended":            {"of before", "mend"},
		"the end of   before":                   nil,
		"besides, amended, retold, consider":    nil,
		"WHOEVER":                               {"whoever"},
	} {
		if diff := cmp.Diff(want, avoidedIn(line)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}

func TestRecordedCountsOfWordsOnlyGoDown(t *testing.T) {
	more, less := count{"docs", "anew"}, count{"pkg/sdk", "told"}
	gone, added := count{"pkg/sdk", "sick"}, count{"docs", "sick"}
	found := map[count][]occurrence{more: make([]occurrence, 3), less: make([]occurrence, 1), added: {{}}}
	allowed := map[count]int{more: 2, less: 4, gone: 1}
	if diff := cmp.Diff(map[count]int{more: 2, less: 1}, lowered(found, allowed, true)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[count]int{more: 3, less: 1, added: 1}, lowered(found, nil, false)); diff != "" {
		t.Errorf("without recorded counts (-want +got):\n%s", diff)
	}
}

func TestWordsCountToAnArea(t *testing.T) {
	for file, want := range map[string]string{
		"README.md":                       ".",
		"docs/deploy/from-hami.md":        "docs",
		"pkg/node/nri/require.go":         "pkg/node/nri",
		"pkg/kubectl/web/ui/src/view.ts":  "pkg/kubectl/web",
		"pkg/sdk/resource/resource.go":    "pkg/sdk/resource",
		"plugins/gpu/scheduler/README.md": "plugins/gpu",
		"test/e2e/devices/main_test.go":   "test/e2e",
	} {
		if got := areaOf(file); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

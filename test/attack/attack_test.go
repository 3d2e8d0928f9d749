// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
)

func TestDocsHaveTheTable(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "test", "attack", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != Markdown(allAttempts(t)) {
		t.Error("test/attack/README.md is not the table of this package: " +
			"run go run ./cmd/attack -print > attack/README.md in test")
	}
}

func TestEachAttemptIsCompleteAndHasAnIDOfItsOwn(t *testing.T) {
	attempts := allAttempts(t)
	if len(attempts) < 80 {
		t.Errorf("%d attempts, want 80 or more", len(attempts))
	}
	if len(attempts) > reservedCard {
		t.Errorf("%d attempts: the node has a device of its own for %d", len(attempts), reservedCard)
	}
	seen := map[string]bool{}
	sample := 0
	for _, a := range attempts {
		if seen[a.ID] || len(validation.IsDNS1123Label("attack-"+a.ID)) > 0 {
			t.Errorf("%q is no ID, or not the only one", a.ID)
		}
		seen[a.ID] = true
		if a.Sample {
			sample++
		}
		if a.Who == "" || a.What == "" || a.Defence == "" || a.Try == nil || a.Off.Try == nil {
			t.Errorf("%s: something is missing: %+v", a.ID, a)
		}
		for _, setting := range []Setting{Both, SealsAlone, PoliciesAlone} {
			for _, mode := range a.Modes {
				want := a.wanted(mode, setting)
				if want.Outcome == "" {
					t.Errorf("%s: nothing is said about %s, %s", a.ID, mode, setting)
				}
				if strings.HasPrefix(string(want.Outcome), "refused") && want.Words == "" {
					t.Errorf("%s: no text of the refusal with %s, %s", a.ID, mode, setting)
				}
			}
		}
	}
	if sample < 10 {
		t.Errorf("%d attempts are in the sample, want 10 or more", sample)
	}
}

// pkg/deviceinfo lists them.
func TestEachKeyThatWeakensADefenceIsAttacked(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	attempts := map[string]bool{}
	for _, attempt := range allAttempts(t) {
		attempts[attempt.ID] = true
	}
	constants := constantsOf(t, filepath.Join(root, "pkg", "deviceinfo"), filepath.Join(root, "pkg", "seal"),
		filepath.Join(root, "pkg", "schedulerapi"), filepath.Join(root, "pkg", "node", "enrolment"))
	sources, attemptFiles := sourcesOf(t, "."), attemptFiles(t)
	for _, key := range deviceinfo.Keys() {
		for _, id := range key.Attacks {
			if !attempts[id] {
				t.Errorf("%s weakens %s: there is no attempt %q", key.Name, key.Weakens, id)
			}
		}
		if len(key.Attacks) > 0 && !strings.Contains(attemptFiles, key.Name) &&
			!isNamed(sources, key.Name, constants) {
			t.Errorf("%s weakens %s: no attempt of %q names it", key.Name, key.Weakens, key.Attacks)
		}
	}
}

// isNamed reports whether a source names a key, as a literal that begins with it or by a constant.
func isNamed(source, key string, constants map[string][]string) bool {
	return strings.Contains(source, `"`+key) || slices.ContainsFunc(constants[strings.TrimSuffix(key, "/")],
		func(constant string) bool { return strings.Contains(source, "."+constant) })
}

// constantsOf returns the exported constants of packages that are literals, by their values.
func constantsOf(t *testing.T, directories ...string) map[string][]string {
	t.Helper()
	constants := map[string][]string{}
	declared := regexp.MustCompile(`(?m)^(?:const |\t)([A-Z]\w+)\s+= "([^"]+)"`)
	for _, directory := range directories {
		for _, match := range declared.FindAllStringSubmatch(sourcesOf(t, directory), -1) {
			constants[match[2]] = append(constants[match[2]], match[1])
		}
	}
	return constants
}

// sourcesOf returns the sources of a package without its tests.
func sourcesOf(t *testing.T, directory string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

func allAttempts(t *testing.T) []*Attempt {
	t.Helper()
	attempts, err := Attempts()
	if err != nil {
		t.Fatal(err)
	}
	return attempts
}

// attemptFiles returns the files of attempts.
func attemptFiles(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	if err := fs.WalkDir(groups, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := groups.ReadFile(path)
		all.Write(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestUnexpectedResultsAreErrors(t *testing.T) {
	attempt := &Attempt{ID: "a", Who: Tenant, What: "tries", Defence: Policies, Modes: Modes()}
	want := Want{RefusedByNode, "no"}
	for name, test := range map[string]struct {
		result Result
		ok     bool
	}{
		"as it must be":   {Result{Got: Got{RefusedByNode, "said no"}}, true},
		"another outcome": {Result{Got: Got{Succeeds, "no"}}, false},
		"another text":    {Result{Got: Got{RefusedByNode, "yes"}}, false},
		"no result":       {Result{Got: Got{RefusedByNode, "no"}, Problem: "the cluster is gone"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.result.ID, test.result.Want = attempt.ID, want
			test.result.Mode, test.result.Setting = cluster.ModeNRI, Both
			var out bytes.Buffer
			err := show(&out, []*Attempt{attempt}, []Result{test.result})
			if (err == nil) != test.ok || strings.Contains(out.String(), "SURPRISE") == test.ok {
				t.Errorf("error %v, and it prints\n%s", err, out.String())
			}
		})
	}
}

func TestTheCounterpartOfASpellingReadsWhatTheDecoderDoesNot(t *testing.T) {
	for text, want := range map[string]Outcome{
		`{"runningcontainer":{"main":{"devrequests":{"r":1},"allocatefrom":{"r":"d"}}}}`: Succeeds,
		`{"runningcontainer":{"main":{"devrequests":{"r":1},"allocatefrom":{"r":"e"}}}}`: NoEffect,
		`{`: RefusedByNode,
	} {
		if got, err := lenient(text, "d"); err != nil || got.Outcome != want {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestEachGuardThatAnAttemptTakesAwayIsInTheSources(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	for file, change := range unguarded {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || strings.Count(string(content), change[0]) != 1 {
			t.Errorf("%s does not have %q once: %v", file, change[0], err)
		}
	}
}

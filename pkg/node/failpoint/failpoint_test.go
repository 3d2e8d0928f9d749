// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPointsAreNamedOnce(t *testing.T) {
	all := Points()
	slices.Sort(all)
	if compact := slices.Compact(slices.Clone(all)); len(compact) != len(all) {
		t.Errorf("some of these are the same: %q", all)
	}
	for _, point := range all {
		if point == "" || strings.ContainsAny(string(point), " \n") {
			t.Errorf("point %q cannot be said in the file", point)
		}
	}
}

var (
	named = regexp.MustCompile(`(?m)^\t(\w+) Point = "`)
	reach = regexp.MustCompile(`failpoint\.Reach\(failpoint\.(\w+)\)`)
)

func TestEveryPointIsSomewhereOnKubecrisWay(t *testing.T) {
	source, err := os.ReadFile("failpoint.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, match := range named.FindAllStringSubmatch(string(source), -1) {
		want = append(want, match[1])
	}
	reached := map[string]bool{}
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files next to this package, %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range reach.FindAllStringSubmatch(string(content), -1) {
			if !strings.HasSuffix(file, "_test.go") {
				reached[match[1]] = true
			}
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(reached))); diff != "" {
		t.Errorf("points (-named +reached):\n%s", diff)
	}
	if len(want) != len(Points()) {
		t.Errorf("%d points are named, Points returns %d", len(want), len(Points()))
	}
}

// program reaches Written three times and says so.
const program = `package main

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

func main() {
	for range 3 {
		failpoint.Reach(failpoint.Granting)
		failpoint.Reach(failpoint.Written)
		fmt.Println("passed")
	}
}
`

func TestAProcessEndsAtThePointThatTheFileNamesAndOnlyIfItIsBuiltForThat(t *testing.T) {
	for name, test := range map[string]struct {
		tags, file string
		passed     int
		killed     bool
	}{
		"the first time":                       {tags: "failpoint", file: "written 1", passed: 0, killed: true},
		"the third time":                       {tags: "failpoint", file: "written 3\n", passed: 2, killed: true},
		"not as often as the file says":        {tags: "failpoint", file: "written 4", passed: 3},
		"at a point that is never reached":     {tags: "failpoint", file: "replied 1", passed: 3},
		"a file that says nothing":             {tags: "failpoint", file: "", passed: 3},
		"a release, which has no failpoints":   {file: "written 1", passed: 3},
		"at another point of the same program": {tags: "failpoint", file: "granting 2", passed: 1, killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := filepath.Join(t.TempDir(), "main.go")
			file := filepath.Join(t.TempDir(), "failpoint")
			err := errors.Join(
				os.WriteFile(source, []byte(program), 0o600), os.WriteFile(file, []byte(test.file), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(t.TempDir(), "program")
			out, err := exec.Command("go", "build", "-tags="+test.tags, "-o", binary, source).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			content, err := os.ReadFile(binary)
			if armed := bytes.Contains(content, []byte("KUBECRI_FAILPOINT")); err != nil || armed != (test.tags != "") {
				t.Errorf("the program knows of failpoints: %v (%v), want %v", armed, err, test.tags != "")
			}
			command := exec.Command(binary)
			command.Env = append(os.Environ(), "KUBECRI_FAILPOINT="+file)
			out, err = command.Output()
			if passed := strings.Count(string(out), "passed"); passed != test.passed {
				t.Errorf("it passed %d times, want %d", passed, test.passed)
			}
			var exit *exec.ExitError
			if killed := errors.As(err, &exit) && exit.ExitCode() == -1; killed != test.killed {
				t.Errorf("killed: %v (%v), want %v", killed, err, test.killed)
			}
			if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) != test.killed {
				t.Errorf("the file is removed if and only if it came to pass: %v", err)
			}
		})
	}
}

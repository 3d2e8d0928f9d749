// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failpoint

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
			if err := errors.Join(os.WriteFile(source, []byte(program), 0o600), os.WriteFile(file, []byte(test.file), 0o600)); err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(t.TempDir(), "program")
			if out, err := exec.Command("go", "build", "-tags="+test.tags, "-o", binary, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			command := exec.Command(binary)
			command.Env = append(os.Environ(), "KUBECRI_FAILPOINT="+file)
			out, err := command.Output()
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

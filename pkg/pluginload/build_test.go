// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	MaybeChild()
	goleak.VerifyTestMain(m)
}

const sdkModule = "github.com/kubedevice/kubedevice/pkg/sdk"

// recipe says how to build a plugin of testdata. Its zero value is a vendor's build for this
// program.
type recipe struct {
	source string // directory in testdata
	module string // module path; empty for one of its own
	sdk    string // version of the SDK; empty for this project's
	mode   string // -buildmode; empty for plugin
	flags  []string
}

// build builds a plugin in a module of its own, outside this repository, as file.
func build(t *testing.T, file string, r recipe) {
	t.Helper()
	if r.module == "" {
		test, plugin := strings.ReplaceAll(t.Name(), "/", "_"), strings.TrimSuffix(filepath.Base(file), ".so")
		r.module = "example.com/" + test + "/" + plugin
	}
	if r.sdk == "" {
		r.sdk = "v0.1.0"
	}
	if r.mode == "" {
		r.mode = "plugin"
	}
	dir := t.TempDir()
	copySource(t, filepath.Join("testdata", r.source), dir)
	sdk, err := filepath.Abs("../sdk")
	if err != nil {
		t.Fatal(err)
	}
	module := fmt.Sprintf("module %s\n\ngo 1.26.0\n\nrequire %s %s\n\nreplace %s => %s\n",
		r.module, sdkModule, r.sdk, sdkModule, sdk)
	writeFile(t, filepath.Join(dir, "go.mod"), module)

	args := []string{"build", "-trimpath", "-buildmode=" + r.mode, "-o", file}
	if raceEnabled() {
		args = append(args, "-race")
	}
	goBuild(t, dir, append(append(args, r.flags...), "."))
}

// goBuild runs the go command in dir, without the machine's settings.
func goBuild(t *testing.T, dir string, args []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// raceEnabled reports whether this test runs under -race: its plugins need the same setting.
func raceEnabled() bool { return setting(hostInfo(), "-race") == "true" }

// copySource copies the files of a directory, with the import prefix of the published SDK changed
// to ours.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed := strings.ReplaceAll(string(content), "github.com/Microsoft/KubeDevice-API/pkg", sdkModule)
		return os.WriteFile(filepath.Join(to, rel), []byte(changed), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func buildC(t *testing.T, file string) {
	t.Helper()
	gcc := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", file, "testdata/c/library.c")
	out, err := gcc.CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

func writeFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, string(content))
}

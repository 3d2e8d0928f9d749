// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

var testArchitectures = []string{"amd64", "arm64"}

// checkout is the directory of this checkout.
const checkout = "../.."

// program builds a small program, once, for all architectures. It has the SDK in it, as the
// programs of a release have, but nothing is left of it but what Go says about it: tests compress
// it often.
var program = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "release-test")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	root, err := filepath.Abs(checkout)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.26.0\n\nrequire " + sdk + " v0.1.0\n\n" +
			"replace " + sdk + " => " + filepath.Join(root, "pkg", "sdk") + "\n",
		"main.go": "package main\n\nimport \"" + sdk + "/types\"\n\n" +
			"func main() { println(types.DeviceGroupPrefix) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	for _, arguments := range [][]string{
		{"go", "build", "-trimpath", "-buildvcs=false", "-o", "program", "."},
		{"objcopy", "--only-section=.go.buildinfo", "program"},
	} {
		command := exec.Command(arguments[0], arguments[1:]...)
		command.Dir, command.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%q: %w: %s", arguments, err, out)
		}
	}
	return os.ReadFile(filepath.Join(dir, "program"))
})

// inputs makes what a release is made of, in a new directory. The programs are small, the manifests
// are those of the checkout.
func inputs(t *testing.T) *release {
	t.Helper()
	content, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &release{
		version: "v1.2.3", revision: "abc", created: time.Unix(1700000000, 0).UTC(), architectures: testArchitectures,
		sources: filepath.Join(dir, "sources"), programs: filepath.Join(dir, "programs"),
		kubectl: filepath.Join(dir, "kubectl"), images: filepath.Join(dir, "images"),
		charts: filepath.Join(dir, "charts"), out: filepath.Join(dir, "out"),
	}
	must(t, os.CopyFS(filepath.Join(r.sources, "deploy"), os.DirFS(filepath.Join(checkout, "deploy"))))
	writeFile(t, filepath.Join(r.sources, "LICENSE"), "a licence\n")
	writeFile(t, filepath.Join(r.sources, "CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\nLater.\n\n"+
		"## 1.2.3 (2026-11-25)\n\n- [Widgets](docs/widgets.md#new), see [them](https://example.com).\n\n"+
		"## 1.2.2\n\nOld.\n")
	page := filepath.Join(r.sources, "pkg", "kubectl", "web", "ui")
	writeFile(t, filepath.Join(page, "package.json"), `{"dependencies": {"page-library": "4.5.6"}}`)
	writeFile(t, filepath.Join(page, "dist", "app.js"), "")
	for _, architecture := range testArchitectures {
		for _, name := range []string{
			"kube-scheduler", "kubecri", "plugins/scheduler/nvidiagpu.so", "plugins/scheduler/simgpu.so",
			"plugins/device/nvidiagpu.so", "plugins/simulated/simgpu.so",
		} {
			writeFile(t, filepath.Join(r.programs, architecture, filepath.FromSlash(name)), string(content))
		}
	}
	for _, platform := range []string{
		"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64", "windows-arm64",
	} {
		writeArchive(t, filepath.Join(r.kubectl, "kubectl-device-"+platform+".tar.gz"), r.created,
			member{path: "kubectl-device", mode: 0o755, content: content})
	}
	writeArchive(t, filepath.Join(r.charts, "kubedevice-1.2.3.tgz"), time.Now(),
		member{path: "kubedevice/Chart.yaml", mode: 0o644, content: []byte("name: kubedevice\nversion: 1.2.3\n")})
	writeImage(t, r, "kubedevice-kubecri", content)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func writeArchive(t *testing.T, path string, modified time.Time, members ...member) {
	t.Helper()
	var content bytes.Buffer
	must(t, writeTarGz(&content, members, modified))
	writeFile(t, path, content.String())
}

// writeImage writes an image with a package of Debian and a program, for each architecture.
func writeImage(t *testing.T, r *release, name string, program []byte) {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, architecture := range testArchitectures {
		var content bytes.Buffer
		must(t, writeTar(&content, []member{
			{path: "kubecri", mode: 0o755, content: program},
			{path: "lib/libc.so.6", mode: 0o755, content: []byte("\x7fELF, but not of Go")},
			{
				path: debianStatus + "libc6", mode: 0o644,
				content: []byte("Package: libc6\nVersion: 2.36-9+deb12u1\nArchitecture: " + architecture + "\n"),
			},
		}, r.created))
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content.Bytes())), nil
		})
		must(t, err)
		image, err := mutate.AppendLayers(empty.Image, layer)
		must(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
	}
	dir := filepath.Join(r.images, name)
	must(t, os.MkdirAll(dir, 0o755))
	_, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index}))
	must(t, err)
}

// written returns the files of a release by their names.
func written(t *testing.T, r *release) map[string]string {
	t.Helper()
	must(t, r.write(t.Context(), io.Discard))
	found := map[string]string{}
	must(t, fs.WalkDir(os.DirFS(r.out), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(r.out, path))
		found[path] = string(content)
		return err
	}))
	return found
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	return string(content)
}

// buildProgram builds a package that a module of this repository requires, and returns the program.
func buildProgram(t *testing.T, module, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), path.Base(pkg))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, pkg)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", build.Args, err, out)
	}
	return binary
}

// runProgram returns what a program prints that must not fail.
func runProgram(t *testing.T, binary string, env []string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary, arguments...)
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", command.Args, err, out)
	}
	return string(out)
}

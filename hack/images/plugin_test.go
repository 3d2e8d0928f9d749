// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostProgram is a program that stands for the kubecri of a release: it was built with the SDK, and
// refuses each plugin that it is to check whose name begins with bad.
const hostProgram = `package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func main() {
	for _, file := range os.Args[4:] { // after plugin check --allow-writable-plugins
		if strings.HasPrefix(filepath.Base(file), "bad") {
			fmt.Println(file, "has another SDK")
			os.Exit(1)
		}
		fmt.Println(file, "loads")
	}
}
`

// host builds hostProgram with the SDK in a version that is tagged nowhere.
func host(t *testing.T) string {
	t.Helper()
	sdk, err := filepath.Abs("../../pkg/sdk")
	if err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{
		"go.mod": "module example.com/host\n\ngo 1.26.0\n\nrequire " + sdkModule + " v0.9.9\n\nreplace " + sdkModule +
			" => " + sdk + "\n",
		"main.go": hostProgram,
	})
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", "kubecri", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "kubecri")
}

func TestAPluginsImageHasBothPluginsAndTheirInstaller(t *testing.T) {
	kubecri, out, template := host(t), t.TempDir(), "../../plugins/template"
	before := tree(t, template)
	arguments := func(name string) []string {
		return []string{
			"plugin", "-name", name, "-module", template, "-kubecri", kubecri, "-sdk", "../../pkg/sdk",
			"-installer", "install",
			"-work", filepath.Join(t.TempDir(), "work"), "-out", out, "-version", "v1.2.3", "-created", "1700000000",
		}
	}
	var printed strings.Builder
	if err := run(t.Context(), arguments("widget"), &printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		runtime.Version(), "SDK v0.9.9", "widget.so loads", "localhost/widget-plugin:v1.2.3",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("it does not print %q: %s", want, printed.String())
		}
	}
	_, made, _ := read(t, filepath.Join(out, "widget-plugin"))
	content := extract(t, made)
	want := []string{
		"install", "plugins", "plugins/device", "plugins/device/widget.so", "plugins/scheduler",
		"plugins/scheduler/widget.so",
	}
	if got := slices.Sorted(maps.Keys(content)); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if mode := content["install"].Mode; mode != 0o755 {
		t.Errorf("/install has the mode %o", mode)
	}
	config, err := made.ConfigFile()
	if err != nil || config.Config.Labels["org.opencontainers.image.licenses"] != "" {
		t.Errorf("the image of others has our licence: %v, %v", config.Config.Labels, err)
	}
	if !cmp.Equal(tree(t, template), before) {
		t.Error("the plugin's module was changed")
	}

	// One that the release would not load becomes no image.
	err = run(t.Context(), arguments("bad"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "another SDK") {
		t.Errorf("a plugin that does not load: %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "bad-plugin")); err == nil {
		t.Error("a plugin that does not load has an image")
	}
}

// The template's README has the commands. The copy and what is built are in a directory of the
// test, and host stands for the programs that "make" would build first.
func TestACopyOfTheTemplateElsewhereHasAnImageAsItsReadmeSays(t *testing.T) {
	readme, err := os.ReadFile("../../plugins/template/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(readme), "<!-- run by hack/images -->\n```sh\n")
	if !found {
		t.Fatal("README.md has no block of commands for this test")
	}
	script, _, _ := strings.Cut(block, "```")
	elsewhere, out := t.TempDir(), t.TempDir()
	shell := exec.CommandContext(t.Context(), "sh", "-euxc", strings.ReplaceAll(script, "../gizmo", elsewhere+"/gizmo"))
	shell.Dir = "../.."
	shell.Env = append(os.Environ(), "MAKEFLAGS=OUT="+out+" HOSTS="+filepath.Dir(host(t)), "GOFLAGS=")
	printed, err := shell.CombinedOutput()
	if err != nil || !strings.Contains(string(printed), "localhost/gizmo-plugin:v") {
		t.Fatalf("%v: %s", err, printed)
	}
	if _, made, _ := read(t, filepath.Join(out, "plugin-images", "gizmo-plugin")); made == nil {
		t.Error("there is no image")
	}
}

func TestFilesThatAreNoPluginsAreRefused(t *testing.T) {
	for want, arguments := range map[string][]string{
		`name "../up"`:      {"-name", "../up"},
		"was built without": {"-name", "widget", "-kubecri", os.Args[0]},
		"no such file":      {"-name", "widget", "-kubecri", filepath.Join(t.TempDir(), "kubecri")},
	} {
		err := run(t.Context(), append([]string{"plugin"}, arguments...), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", arguments, err, want)
		}
	}
}

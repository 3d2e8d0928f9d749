// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// image returns a directory with the plugins of an image.
func image(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPluginsAreCopiedForOthersToReadAlone(t *testing.T) {
	from := image(t, "device/widget.so", "scheduler/widget.so", "device/README")
	to := filepath.Join(t.TempDir(), "a", "b")
	const other = "/schedulerplugins/nvidiagpu.so"
	for range 2 { // as often as the pod starts
		if err := run(from, []string{"-scheduler", to, "-link", other}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(filepath.Join(to, "widget.so"))
	if err != nil || string(content) != "scheduler/widget.so" {
		t.Errorf("the plugin is %q, %v", content, err)
	}
	for name, want := range map[string]os.FileMode{"widget.so": 0o644, ".": os.ModeDir | 0o755} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode() != want {
			t.Errorf("%s has the mode %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if target, err := os.Readlink(filepath.Join(to, "nvidiagpu.so")); err != nil || target != other {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) != 2 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

func TestAPluginThatIsOpenIsReplacedNotOverwritten(t *testing.T) {
	from, to := image(t, "device/widget.so"), t.TempDir()
	installed := filepath.Join(to, "widget.so")
	if err := os.WriteFile(installed, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(installed)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := run(from, []string{"-device", to}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(open); err != nil || string(content) != "old" {
		t.Errorf("who has it open reads %q, %v", content, err)
	}
}

func TestErrorsNameThePluginThatCannotBeInstalled(t *testing.T) {
	from := image(t, "device/widget.so")
	for want, args := range map[string][]string{
		"want -device":                            nil,
		"-link is for -scheduler":                 {"-device", t.TempDir(), "-link", "/a.so"},
		"scheduler: the image has no such plugin": {"-scheduler", t.TempDir()},
	} {
		if err := run(from, args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

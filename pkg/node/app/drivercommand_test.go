// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// procOf returns a /proc in which kubecri and another program have such a file open.
func procOf(kubecri, other string) fstest.MapFS {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }
	return fstest.MapFS{
		"100/comm": {Data: []byte("kubecri\n")}, "100/fd/3": link("/dev/null"), "100/fd/4": link(kubecri),
		"200/comm": {Data: []byte("python3\n")}, "200/fd/0": link(other), "self": link("100"), "uptime": {},
	}
}

func TestTheDriverIsReleasedWhenKubecriHasClosedIt(t *testing.T) {
	for name, test := range map[string]struct {
		kubecri, other string
		says, fails    string
	}{
		"kubecri has closed it": {"/dev/null", "/dev/null", "kubecri does not use the driver", ""},
		"another program uses it": {
			"socket:[1]", "/dev/nvidia0", "before these end, which have its files open: python3 (PID 200)", "",
		},
		"kubecri has it open": {
			"/dev/nvidiactl", "/dev/nvidia0", "", "kubecri (PID 100) still has /dev/nvidiactl open",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			d := &driver{filepath.Join(t.TempDir(), "run", "release"), procOf(test.kubecri, test.other), &out}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := d.release(ctx)
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) ||
				!strings.Contains(out.String(), test.says) {
				t.Errorf("it says %q, and fails with %v; want %q, %q", out.String(), err, test.says, test.fails)
			}
			if _, err := os.Stat(d.file); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheDriverIsTakenWhenKubecriHasOpenedIt(t *testing.T) {
	for name, test := range map[string]struct {
		kubecri, says, fails string
	}{
		"kubecri has opened it": {"/dev/nvidiactl", "kubecri uses the driver again", ""},
		"it has not":            {"/dev/null", "", "has not opened it yet"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			d := &driver{filepath.Join(t.TempDir(), "release"), procOf(test.kubecri, "/dev/nvidia0"), &out}
			if err := os.WriteFile(d.file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := d.take(ctx)
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) ||
				!strings.Contains(out.String(), test.says) {
				t.Errorf("it says %q, and fails with %v; want %q, %q", out.String(), err, test.says, test.fails)
			}
			if _, err := os.Stat(d.file); err == nil {
				t.Error("the file is still there")
			}
		})
	}
}

func TestThePluginNamesTheSameFile(t *testing.T) {
	source, err := os.ReadFile("../../../plugins/nvidiagpu/node/release.go")
	if err != nil || !strings.Contains(string(source), `"`+releaseFile+`"`) {
		t.Errorf("the plugin nvidiagpu does not name %s: %v", releaseFile, err)
	}
}

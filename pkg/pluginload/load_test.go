// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// TestEachBadFileGivesOneLine lists files that people put into plugin directories by mistake, with
// the resulting line. Every case goes through all stages, by Check and by LoadDir, and this process
// survives each.
func TestEachBadFileGivesOneLine(t *testing.T) {
	otherRace := "-race"
	if raceEnabled() {
		otherRace = "-race=false"
	}
	tests := map[string]struct {
		make func(t *testing.T, file string)
		want string // the line without its beginning, which names the file
	}{
		"a text file": {
			make: func(t *testing.T, file string) { writeFile(t, file, "hello, world\n") },
			want: `is no shared library: it begins with "hello, world\n"; remove it, or rebuild it with go build ` +
				`-buildmode=plugin -trimpath`,
		},
		"the first part of a plugin": {
			make: func(t *testing.T, file string) {
				damage(t, file, func(content []byte) []byte { return content[:len(content)/2] })
			},
			want: `; copy or build it again`,
		},
		"a plugin without its last byte": {
			make: func(t *testing.T, file string) {
				damage(t, file, func(content []byte) []byte { return content[:len(content)-1] })
			},
			want: `; copy or build it again`,
		},
		"the first bytes of a plugin": {
			make: func(t *testing.T, file string) {
				damage(t, file, func(content []byte) []byte { return content[:20] })
			},
			want: `is truncated or damaged, at 20 bytes: `,
		},
		"another release of Go": {
			make: func(t *testing.T, file string) {
				damage(t, file, func(content []byte) []byte {
					return bytes.ReplaceAll(content, []byte(hostInfo().GoVersion),
						[]byte(strings.Repeat("x", len(hostInfo().GoVersion))))
				})
			},
			want: `is built with x`,
		},
		"another machine": {
			make: func(t *testing.T, file string) {
				damage(t, file, func(content []byte) []byte {
					const machine = 18 // where an ELF header has it
					binary.LittleEndian.PutUint16(content[machine:], uint16(elf.EM_S390))
					return content
				})
			},
			want: `is built for EM_S390, this program for `,
		},
		"an empty file": {
			make: func(t *testing.T, file string) { writeFile(t, file, "") },
			want: `is no shared library: it begins with ""; remove it, or rebuild it with go build ` +
				`-buildmode=plugin -trimpath`,
		},
		"a directory": {
			make: func(t *testing.T, file string) {
				if err := os.Mkdir(file, 0o755); err != nil {
					t.Fatal(err)
				}
			},
			want: `is no regular file but d---------; remove it from the directory`,
		},
		"a named pipe": {
			make: func(t *testing.T, file string) {
				if err := syscall.Mkfifo(file, 0o644); err != nil {
					t.Fatal(err)
				}
			},
			want: `is no regular file but p---------; remove it from the directory`,
		},
		"a link to nowhere": {
			make: func(t *testing.T, file string) {
				if err := os.Symlink("nowhere", file); err != nil {
					t.Fatal(err)
				}
			},
			want: `cannot be read: no such file or directory; check the path and its permissions`,
		},
		"a shared library that is C's": {
			make: buildC,
			want: `is no Go plugin: it has no Go build information; rebuild it with go build -buildmode=plugin ` +
				`-trimpath`,
		},
		"a shared library of Go for C programs": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "c-shared", mode: "c-shared"}) },
			want: `is no Go plugin: it is built with -buildmode=c-shared; rebuild it with go build ` +
				`-buildmode=plugin -trimpath`,
		},
		"another version of the SDK": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "device", sdk: "v0.2.0"}) },
			want: `is built with a different version of package ` + sdkModule + `/types: `,
		},
		"another setting of the race detector": {
			make: func(t *testing.T, file string) {
				build(t, file, recipe{source: "device", flags: []string{otherRace}})
			},
			want: `: -race is `,
		},
		"other compiler flags": {
			make: func(t *testing.T, file string) {
				build(t, file, recipe{source: "device", flags: []string{"-gcflags=all=-N -l"}})
			},
			// Of which package depends on what the plugin imports.
			want: `: -gcflags is all=-N -l in the plugin and unset here; rebuild it with this program's versions ` +
				`and flags`,
		},
		"no -trimpath": {
			make: func(t *testing.T, file string) {
				build(t, file, recipe{source: "device", flags: []string{"-trimpath=false"}})
			},
			want: `: -trimpath is unset in the plugin and true here; rebuild it with this program's versions and flags`,
		},
		"no entry point": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "no-symbol"}) },
			want: `; export `,
		},
		"a method with the name of an entry point": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "method"}) },
			want: `does not export CreateDevicePlugin; export a function of that name from its package main`,
		},
		"an entry point of another type": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "wrong-type"}) },
			want: `CreateDevicePlugin is a func() device.Device, not a func() (device.Device, error); declare it as ` +
				`func CreateDevicePlugin() (device.Device, error)`,
		},
		"an entry point that is a variable": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "variable"}) },
			want: `CreateDevicePlugin is a *func() (device.Device, error), not a func() (device.Device, error); ` +
				`declare it as func CreateDevicePlugin() (device.Device, error)`,
		},
		"a panic in init": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "panics-in-init"}) },
			want: `its initialisation panicked: no licence for this machine; report it to the plugin's author`,
		},
		"a panic in the entry point": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "panics-in-create"}) },
			want: `CreateDevicePlugin panicked: no widgets; report it to the plugin's author`,
		},
		"a panic in New": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "panics-in-new"}) },
			want: `New panicked: no widgets; report it to the plugin's author`,
		},
		"an error of the entry point": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "fails-in-create"}) },
			want: `CreateDevicePlugin returned an error: no widgets; see the plugin's documentation`,
		},
		"an error of New": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "fails-in-new"}) },
			want: `New returned an error: no widgets; see the plugin's documentation`,
		},
		"an entry point that returns nothing": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "returns-nil"}) },
			want: `CreateDevicePlugin returned nil; report it to the plugin's author`,
		},
		"an entry point that ends its goroutine": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "ends-goroutine"}) },
			want: `CreateDevicePlugin ended its goroutine; report it to the plugin's author`,
		},
		"an exit while it is initialised": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "exits"}) },
			want: `no widgets on this machine; report it to the plugin's author`,
		},
		"a crash that cannot be recovered": {
			make: func(t *testing.T, file string) { build(t, file, recipe{source: "crashes"}) },
			want: `ended the process that tried it: exit status 2: panic: lost in a goroutine; report it to the ` +
				`plugin's author`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "bad.so")
			test.make(t, file)

			line, err := (&Checker{}).Check(t.Context(), file)
			if err == nil {
				t.Fatalf("Check = %q, want an error", line)
			}
			checked := err.Error()
			if !strings.HasPrefix(checked, `plugin "`+file+`": `) || !strings.Contains(checked, test.want) ||
				strings.Contains(checked, "\n") {
				t.Errorf("got  %s\nwant %s", checked, test.want)
			}

			loaded, rejected := LoadDir(testContext(t), dir, Devices())
			if len(loaded) != 0 || len(rejected) != 1 {
				t.Fatalf("LoadDir = %v, %v", loaded, rejected)
			}
			// The two differ in one case, in which Check accepts either entry point.
			if name != "no entry point" && sameButTime(rejected[0].Error()) != sameButTime(checked) {
				t.Errorf("LoadDir says %s\nCheck says   %s", rejected[0], checked)
			}
		})
	}
}

// testContext is a context whose log lines show only when the test fails.
func testContext(t *testing.T) context.Context {
	_, ctx := ktesting.NewTestContext(t)
	return ctx
}

// damage builds a valid plugin and changes its bytes.
func damage(t *testing.T, file string, change func(content []byte) []byte) {
	t.Helper()
	build(t, file, recipe{source: "device"})
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, string(change(content)))
}

// sameButTime drops the prefix of the standard library's log.
func sameButTime(line string) string {
	const format = "2006/01/02 15:04:05 "
	for i := range line {
		if i+len(format) <= len(line) {
			if _, err := time.Parse(format, line[i:i+len(format)]); err == nil {
				return line[:i] + line[i+len(format):]
			}
		}
	}
	return line
}

func TestHangingFileTimesOut(t *testing.T) {
	dir := t.TempDir()
	build(t, filepath.Join(dir, "hangs.so"), recipe{source: "hangs-in-init"})
	kind := Devices()
	kind.timeout = 200 * time.Millisecond

	loaded, rejected := LoadDir(testContext(t), dir, kind)
	want := `plugin "` + filepath.Join(dir, "hangs.so") +
		`": its initialisation did not end within 200ms; report it to the plugin's author`
	if len(loaded) != 0 || len(rejected) != 1 || rejected[0].Error() != want {
		t.Errorf("got %v, %v\nwant %s", loaded, rejected, want)
	}
}

func TestLoadsADirectoryInOrderOfFileNames(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	build(t, path("20-gadget.so"), recipe{source: "device"})
	build(t, path("10-existing.so"), recipe{source: "existing"})
	build(t, path("50-scheduler.so"), recipe{source: "scheduler"})
	build(t, path("40-copied-module.so"), recipe{
		source: "device", module: "example.com/" + t.Name() + "/20-gadget",
		flags: []string{"-tags=other", "-ldflags=-s -w"},
	})
	copyFile(t, path("20-gadget.so"), path("30-copy.so"))
	copyFile(t, path("20-gadget.so"), path(".hidden.so"))
	writeFile(t, path("README.md"), "Plugins go here.")

	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	loaded, rejected := LoadDir(klog.NewContext(t.Context(), logger), dir, Devices())
	// A check of the same directory says the same, except of plugins of the other kind.
	checked := checkAll(t, Checker{}, dir)

	type outcome struct{ File, Name string }
	var got []outcome
	for _, l := range loaded {
		got = append(got, outcome{l.File, l.Name})
	}
	want := []outcome{{path("10-existing.so"), "gadgets"}, {path("20-gadget.so"), "gadget"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
	var lines []string
	for _, err := range rejected {
		lines = append(lines, err.Error())
	}
	wantLines := []string{
		`plugin "` + path("30-copy.so") + `": is the same file as "` + path("20-gadget.so") +
			`"; remove one of the two`,
		`plugin "` + path("40-copied-module.so") + `": is built from package ` +
			`example.com/` + t.Name() + `/20-gadget, as "` + path("20-gadget.so") +
			`" is, and Go opens a package only once; give one of them a module path of its own in its go.mod and ` +
			`rebuild it`,
		`plugin "` + path("50-scheduler.so") + `": is a scheduler plugin: it exports CreateDeviceSchedulerPlugin, ` +
			`not CreateDevicePlugin; move it to kube-scheduler's --devschedpath`,
	}
	if diff := cmp.Diff(wantLines, lines); diff != "" {
		t.Errorf("rejected (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantLines[:2], checked); diff != "" {
		t.Errorf("refused by a check (-want +got):\n%s", diff)
	}

	logged := map[string]int{}
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		logged[entry.Message]++
	}
	if diff := cmp.Diff(map[string]int{"Loaded a plugin": 2, "A plugin is left out": 3}, logged); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}

	// This process has called New, too.
	for _, l := range loaded {
		container := types.NewContainerInfo()
		container.AllocateFrom["example.com/gadget"] = "example.com/gadget"
		if _, paths, _, err := l.Plugin.Allocate(types.NewPodInfo(), container); err != nil || len(paths) != 1 {
			t.Errorf("%s: Allocate = %v, %v", l.Name, paths, err)
		}
	}
}

// checkAll returns the errors of the files of a directory that would not load.
func checkAll(t *testing.T, checker Checker, dir string) (refused []string) {
	t.Helper()
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, err := checker.Check(t.Context(), file); err != nil {
			refused = append(refused, err.Error())
		}
	}
	return refused
}

func TestCheckRejectsFilesWithOtherNames(t *testing.T) {
	for _, name := range []string{"gadget", "gadget.so.new", ".gadget.so"} {
		_, err := (&Checker{}).Check(t.Context(), filepath.Join(t.TempDir(), name))
		if err == nil || !strings.Contains(err.Error(), "is left out by its name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadsAndChecksASchedulerPlugin(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gadgets.so")
	build(t, file, recipe{source: "existing", module: "example.com/gadgets"})

	line, err := (&Checker{}).Check(t.Context(), file)
	want := `plugin "` + file + `": loads as scheduler plugin "gadgets" and device plugin "gadgets", built from ` +
		`example.com/gadgets with ` +
		hostInfo().GoVersion + " and SDK v0.1.0"
	if err != nil || line != want {
		t.Errorf("Check = %q, %v\nwant    %q", line, err, want)
	}

	loaded, rejected := LoadDir(testContext(t), dir, Schedulers())
	if len(loaded) != 1 || len(rejected) != 0 {
		t.Fatalf("LoadDir = %v, %v", loaded, rejected)
	}
	pod := types.NewPodInfo()
	pod.RunningContainers["app"] = types.ContainerInfo{KubeRequests: types.ResourceList{"example.com/gadget": 3}}
	fits, reasons, _ := loaded[0].Plugin.PodFitsDevice(types.NewNodeInfoWithName("n1"), pod, false)
	if fits || len(reasons) != 1 || reasons[0].GetReason() != "Insufficient example.com/gadget" {
		t.Errorf("PodFitsDevice = %v, %v", fits, reasons)
	}
}

func TestAbsentDirectoryIsEmpty(t *testing.T) {
	loaded, rejected := LoadDir(testContext(t), filepath.Join(t.TempDir(), "none"), Devices())
	if len(loaded) != 0 || len(rejected) != 0 {
		t.Errorf("LoadDir = %v, %v", loaded, rejected)
	}
}

func TestUnreadableDirectoryIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	loaded, rejected := LoadDir(testContext(t), file, Devices())
	if len(loaded) != 0 || len(rejected) != 1 || !strings.Contains(rejected[0].Error(), file) {
		t.Errorf("LoadDir = %v, %v", loaded, rejected)
	}
}

func TestLoadingEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.so"), "")
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if loaded, rejected := LoadDir(ctx, dir, Devices()); len(loaded) != 0 || len(rejected) != 1 ||
		rejected[0] != context.Canceled {
		t.Errorf("LoadDir = %v, %v", loaded, rejected)
	}
}

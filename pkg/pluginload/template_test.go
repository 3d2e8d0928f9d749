// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"archive/zip"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// TestCopyOfTheTemplateBuildsAndLoads follows its README, in each way that makes no image.
func TestCopyOfTheTemplateBuildsAndLoads(t *testing.T) {
	blocks := shellBlocks(t, "../../plugins/template/README.md")
	for name, test := range map[string]struct {
		name   string // instead of gizmo: this process opens a package once
		script string
		at     string // where the copy is, from the checkout
		env    []string
	}{
		"in the repository":    {name: "gizmo", script: blocks["plugins/gizmo"], at: "plugins"},
		"with a published SDK": {name: "doodad", script: blocks["-dropreplace="], at: "..", env: sdkProxy(t)},
		"with the SDK of a checkout": {
			name: "gadget", at: "..",
			script: strings.Replace(blocks["-dropreplace="], "go mod tidy\n", blocks["-replace="], 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkout := filepath.Join(t.TempDir(), "kubedevice")
			copySource(t, "../../plugins/template", filepath.Join(checkout, "plugins", "template"))
			copySource(t, "../sdk", filepath.Join(checkout, "pkg", "sdk"))
			script := test.script + blocks["go build"] +
				"mkdir devices schedulers\nmv widget-device.so devices\nmv widget-scheduler.so schedulers\n"
			shell := exec.CommandContext(t.Context(), "sh", "-euxc", strings.ReplaceAll(script, "gizmo", test.name))
			shell.Dir = checkout
			shell.Env = append(os.Environ(), append(test.env, "GOWORK=off", "CGO_ENABLED=1", "GOFLAGS=-modcacherw")...)
			if raceEnabled() {
				shell.Env = append(shell.Env, "GOFLAGS=-modcacherw -race")
			}
			if out, err := shell.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			copied := filepath.Join(checkout, test.at, test.name)
			requirePair(t, filepath.Join(copied, "devices"), filepath.Join(copied, "schedulers"))
		})
	}
}

// shellBlocks returns the blocks of commands in a document, by a text that only one of them has.
func shellBlocks(t *testing.T, file string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{"plugins/gizmo": "", "-replace=": "", "-dropreplace=": "", "go build": ""}
	for _, part := range strings.Split(string(content), "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```\n")
		for known := range blocks {
			if strings.Contains(block, known) {
				blocks[known] = block
			}
		}
	}
	for known, block := range blocks {
		if block == "" {
			t.Fatalf("%s has no block of commands with %q", file, known)
		}
	}
	return blocks
}

// sdkProxy returns an environment in which the go command fetches the SDK from a module proxy.
func sdkProxy(t *testing.T) []string {
	t.Helper()
	const version = "v0.1.0"
	proxy := t.TempDir()
	dir := filepath.Join(proxy, sdkModule, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "list"), version+"\n")
	writeFile(t, filepath.Join(dir, version+".info"), `{"Version": "`+version+`"}`)
	copyFile(t, "../sdk/go.mod", filepath.Join(dir, version+".mod"))
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := zip.NewWriter(archive)
	err = filepath.WalkDir("../sdk", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := files.Create(sdkModule + "@" + version + strings.TrimPrefix(path, "../sdk"))
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return err
	})
	if err := errors.Join(err, files.Close()); err != nil {
		t.Fatal(err)
	}
	return []string{"GOPROXY=file://" + proxy, "GOSUMDB=off", "GOMODCACHE=" + t.TempDir()}
}

// requirePair loads both plugins of the template and allocates a device to a pod with them.
func requirePair(t *testing.T, devices, schedulers string) {
	t.Helper()
	t.Setenv("WIDGET_DIR", t.TempDir()) // read when the plugin is created
	device, rejected := LoadDir(testContext(t), devices, Devices())
	if len(device) != 1 || len(rejected) != 0 {
		t.Fatalf("device plugin: %v, %v", device, rejected)
	}
	scheduler, rejected := LoadDir(testContext(t), schedulers, Schedulers())
	if len(scheduler) != 1 || len(rejected) != 0 {
		t.Fatalf("scheduler plugin: %v, %v", scheduler, rejected)
	}

	node := types.NewNodeInfoWithName("n1")
	if err := device[0].Plugin.UpdateNodeInfo(node); err != nil || node.KubeCap["example.com/widget"] != 0 {
		t.Errorf("an empty directory: %v, %v", node, err)
	}
	types.AddGroupResource(node.Allocatable, "board/b0/widget/w0/cards", 1)
	node.Allocatable["example.com/widget"] = 1
	pod := types.NewPodInfo()
	app := types.NewContainerInfo()
	app.KubeRequests["example.com/widget"] = 1
	pod.RunningContainers["app"] = *app
	if fits, reasons, _ := scheduler[0].Plugin.PodFitsDevice(node, pod, false); !fits {
		t.Errorf("PodFitsDevice = %v", reasons)
	}
	if got := pod.RunningContainers["app"].DevRequests["resource/group/board/0/widget/counted-0/cards"]; got != 1 {
		t.Errorf("requests: %v", pod.RunningContainers["app"].DevRequests)
	}
}

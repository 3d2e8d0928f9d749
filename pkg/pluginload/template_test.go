// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// TestTheTemplateLoadsFromACopyElsewhere does what its README tells vendors to do.
func TestTheTemplateLoadsFromACopyElsewhere(t *testing.T) {
	elsewhere := t.TempDir()
	copySource(t, "../../plugins/template", elsewhere)
	sdk, err := filepath.Abs("../sdk")
	if err != nil {
		t.Fatal(err)
	}
	goBuild(t, elsewhere, []string{"mod", "edit", "-module=example.com/gizmo", "-replace=" + sdkModule + "=" + sdk})
	for _, main := range []string{"device/main.go", "scheduler/main.go"} {
		file := filepath.Join(elsewhere, main)
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, strings.ReplaceAll(string(source), "example.com/widget/", "example.com/gizmo/"))
	}
	devices, schedulers := t.TempDir(), t.TempDir()
	flags := []string{"build", "-buildmode=plugin", "-trimpath"}
	if raceEnabled() {
		flags = append(flags, "-race")
	}
	goBuild(t, elsewhere, append(flags, "-o", filepath.Join(devices, "gizmo.so"), "./device"))
	goBuild(t, elsewhere, append(flags, "-o", filepath.Join(schedulers, "gizmo.so"), "./scheduler"))

	t.Setenv("WIDGET_DIR", t.TempDir()) // read when the plugin is created
	device, rejected := LoadDir(quietly(t), devices, Devices())
	if len(device) != 1 || len(rejected) != 0 {
		t.Fatalf("device half: %v, %v", device, rejected)
	}
	scheduler, rejected := LoadDir(quietly(t), schedulers, Schedulers())
	if len(scheduler) != 1 || len(rejected) != 0 {
		t.Fatalf("scheduler half: %v, %v", scheduler, rejected)
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

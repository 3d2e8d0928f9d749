// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// healthOf returns the reason of each unhealthy GPU, by number, after an inventory. It fails the
// test unless exactly the others are allocatable.
func healthOf(t *testing.T, d *Device) map[int]string {
	t.Helper()
	info := update(t, d)
	list, err := d.DeviceHealth()
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[int]string{}
	for number := range 4 {
		allocatable := false
		for name, quantity := range info.Allocatable {
			id, kind, _ := gpu.Split(name)
			allocatable = allocatable || id == nvmltest.UUID(number) && kind == gpu.Cards && quantity == 1
		}
		for _, h := range list {
			if strings.HasSuffix(h.Device, "/gpu/"+nvmltest.UUID(number)) && !h.Healthy {
				reasons[number] = h.Reason
				if h.Message == "" || h.Since.IsZero() {
					t.Errorf("GPU %d has no message or no time: %+v", number, h)
				}
			}
		}
		if _, unhealthy := reasons[number]; unhealthy == allocatable {
			t.Errorf("GPU %d: unhealthy is %v, allocatable is %v", number, unhealthy, allocatable)
		}
	}
	return reasons
}

func TestTheHealthOfGPUs(t *testing.T) {
	type story struct {
		what string
		do   func(nvmltest.Library)
		want map[int]string
	}
	say := func(number int, health nvmltest.Health) func(nvmltest.Library) {
		return func(l nvmltest.Library) { l.Say(t, number, health) }
	}
	breaks := func(number, xid int) func(nvmltest.Library) {
		return func(l nvmltest.Library) { l.Break(t, number, xid) }
	}
	none := map[int]string{}
	for name, test := range map[string]struct {
		disable, enable string
		stories         []story
	}{
		"what GPUs say of themselves": {stories: []story{
			{"nothing is wrong", func(nvmltest.Library) {}, none},
			{"a row cannot be remapped", say(1, nvmltest.Health{RowRemapFailed: true}),
				map[int]string{1: "RowRemapFailed"}},
			{"another has pages", say(2, nvmltest.Health{PagesPending: true}),
				map[int]string{2: "PageRetirementPending"}},
			{"a reset is needed", say(0, nvmltest.Health{RecoveryAction: 1}), map[int]string{0: "ResetRequired"}},
			{"a reboot", say(0, nvmltest.Health{RecoveryAction: 2}), map[int]string{0: "RebootRequired"}},
			{"a drain", say(0, nvmltest.Health{RecoveryAction: 3}), map[int]string{0: "DrainP2PRequired"}},
			{"drain and reset", say(3, nvmltest.Health{RecoveryAction: 4}),
				map[int]string{3: "DrainAndResetRequired"}},
			{"what is not known yet", say(3, nvmltest.Health{RecoveryAction: 9}),
				map[int]string{3: "RecoveryRequired"}},
			{"nothing any more", say(0, nvmltest.Health{}), none},
		}},
		"an XID stays until the driver has requested an action and requests no more": {stories: []story{
			{"errors of applications are no fault", func(l nvmltest.Library) {
				for _, xid := range []int{13, 31, 43, 45, 68, 109} {
					l.Break(t, 0, xid)
				}
			}, none},
			{"a fault", breaks(1, 48), map[int]string{1: "Xid48"}},
			{"one of another GPU", breaks(2, 62), map[int]string{1: "Xid48", 2: "Xid62"}},
			{"the driver requests a reset of the first", say(1, nvmltest.Health{RecoveryAction: 1}),
				map[int]string{1: "Xid48", 2: "Xid62"}},
			{"the first is reset", say(1, nvmltest.Health{}), map[int]string{2: "Xid62"}},
		}},
		"a GPU falls off the bus and comes back": {stories: []story{
			{"the XID comes first", breaks(3, 79), map[int]string{3: "Xid79"}},
			{"it does not answer", func(l nvmltest.Library) {
				l.Repair(t) // the driver reports an XID once
				l.Lose(t, 3)
			}, map[int]string{3: "Lost"}},
			{"it answers still not", func(nvmltest.Library) {}, map[int]string{3: "Lost"}},
			{"the XIDs of others are noticed", breaks(0, 48), map[int]string{0: "Xid48", 3: "Lost"}},
			{"it answers again", func(l nvmltest.Library) { l.Lose(t) }, map[int]string{0: "Xid48"}},
		}},
		"XIDs are switched off": {disable: "48, ALL", stories: []story{{"a fault", breaks(0, 79), none}}},
		"one XID is switched off": {disable: "48,no-number", stories: []story{
			{"that", breaks(0, 48), none},
			{"another", breaks(0, 79), map[int]string{0: "Xid79"}},
		}},
		"only one is on": {disable: "xids", enable: "31", stories: []story{
			{"another", breaks(0, 79), none},
			{"that", breaks(0, 31), map[int]string{0: "Xid31"}},
		}},
		"all are on": {disable: "all", enable: "all", stories: []story{
			{"even an application's", breaks(0, 13), map[int]string{0: "Xid13"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(DisableHealthChecks, test.disable)
			t.Setenv(EnableHealthChecks, test.enable)
			library := nvmltest.Build(t, pairs4())
			d := started(t, library.Path)
			healthOf(t, d)
			for _, story := range test.stories {
				story.do(library)
				if diff := cmp.Diff(story.want, healthOf(t, d)); diff != "" {
					t.Errorf("%s: unhealthy GPUs (-want +got):\n%s", story.what, diff)
				}
			}
		})
	}
}

func TestAGPUThatIsHealthyAgainSaysWhatEnded(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	d := started(t, library.Path)
	library.Say(t, 1, nvmltest.Health{RowRemapFailed: true})
	update(t, d)
	library.Say(t, 1, nvmltest.Health{})
	update(t, d)
	update(t, d)

	list, err := d.DeviceHealth()
	if err != nil || len(list) != 1 {
		t.Fatalf("DeviceHealth = %+v, %v", list, err)
	}
	want := device.Health{
		Device: "resource/group/gpugrp1/0/gpugrp0/1/gpu/" + nvmltest.UUID(1), Healthy: true,
		Reason: "Recovered", Message: "no longer RowRemapFailed", Since: list[0].Since,
	}
	if diff := cmp.Diff(want, list[0]); diff != "" || want.Since.IsZero() {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The driver reports each change of what a GPU needs by an XID of its own.
func TestTheXIDOfARecoveryActionIsNoFault(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	d := startedWith(t, library.Path, filepath.Join(t.TempDir(), "faults"))
	update(t, d)
	library.Break(t, 1, recoveryActionXID)
	if diff := cmp.Diff(map[int]string{}, healthOf(t, d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// As with NVIDIA's plugin, which remembers none.
func TestAnXIDThatDoesNotCountAnyMoreEndsWithARestart(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	file := filepath.Join(t.TempDir(), "faults")
	first := startedWith(t, library.Path, file)
	update(t, first)
	library.Break(t, 0, 94)
	library.Break(t, 3, 79)
	if diff := cmp.Diff(map[int]string{0: "Xid94", 3: "Xid79"}, healthOf(t, first)); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	t.Setenv(DisableHealthChecks, "94")
	second := startedWith(t, library.Path, file)
	if diff := cmp.Diff(map[int]string{3: "Xid79"}, healthOf(t, second)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	t.Setenv(DisableHealthChecks, "")
	third := startedWith(t, library.Path, file)
	if diff := cmp.Diff(map[int]string{3: "Xid79"}, healthOf(t, third)); diff != "" {
		t.Errorf("it counts again, and a previous XID is back (-want +got):\n%s", diff)
	}
}

func TestXIDsAndHealthAreLoggedOnce(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	d := startedWith(t, library.Path, filepath.Join(t.TempDir(), "faults"))
	update(t, d)
	var lines []string
	warn, log := utils.Warningf, utils.Logf
	t.Cleanup(func() { utils.Warningf, utils.Logf = warn, log })
	utils.Warningf = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	utils.Logf = func(_ int, format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, xid := range []int{31, 31, 79, 79} {
		library.Break(t, 1, xid)
		update(t, d)
		update(t, d)
	}
	gpu := "NVIDIA GPU " + nvmltest.UUID(1)
	want := []string{
		gpu + " has reported XID 31, which is ignored",
		gpu + " has reported XID 79, which makes it unhealthy",
		gpu + " is unhealthy: Xid79: critical error (XID) 79; reset the GPU or reboot the machine",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

func TestAnXIDOutlivesARestart(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	file := filepath.Join(t.TempDir(), "run", "faults")
	first := startedWith(t, library.Path, file)
	update(t, first) // from here on they are watched
	library.Break(t, 0, 48)
	library.Break(t, 3, 79)
	if diff := cmp.Diff(map[int]string{0: "Xid48", 3: "Xid79"}, healthOf(t, first)); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	before, _ := first.DeviceHealth()
	library.Lose(t, 3)
	update(t, first)
	library.Repair(t) // the driver reports it once
	library.Lose(t)

	second := startedWith(t, library.Path, file)
	if diff := cmp.Diff(map[int]string{0: "Xid48"}, healthOf(t, second)); diff != "" {
		t.Errorf("after a restart; GPU 3 was lost and is back (-want +got):\n%s", diff)
	}
	after, _ := second.DeviceHealth()
	if !before[0].Since.Equal(after[0].Since) {
		t.Errorf("it was unhealthy since %v, and after a restart since %v", before[0].Since, after[0].Since)
	}
	if third := startedWith(t, library.Path, filepath.Join(t.TempDir(), "faults")); len(healthOf(t, third)) > 0 {
		t.Error("after a boot the fault is still there")
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

func TestMain(m *testing.M) {
	pluginload.MaybeChild()
	MaybeChild()
	// With the race detector, each child would wait for a second when it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// buildPlugin builds a package of this repository as a plugin for this test's program.
func buildPlugin(t *testing.T, from, pkg string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "plugin.so")
	args := []string{"build", "-trimpath", "-buildmode=plugin", "-o", file}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" && setting.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, pkg)...)
	cmd.Dir = from
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return file
}

// patient are limits for a machine that does much else. A call that hangs costs the test that long.
func patient() Options {
	return Options{Limits: Limits{
		Start: 5 * time.Second, Update: 5 * time.Second, Allocate: 5 * time.Second, Schedule: 5 * time.Second,
		Health: 3 * time.Second, Concurrent: 50 * time.Millisecond, Check: 2 * time.Minute, Command: time.Minute,
	}}
}

// failures returns the checks that failed, by kind and name.
func failures(report *Report) (names []string) {
	for _, result := range report.Results {
		if result.Status == Failed {
			names = append(names, result.Kind+"/"+result.Check)
		}
	}
	return names
}

func text(t *testing.T, report *Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestEachFaultFailsOneCheck has a pair of plugins with one fault at a time.
func TestEachFaultFailsOneCheck(t *testing.T) {
	file := buildPlugin(t, ".", "./testdata/faulty")
	const devicePlugin, schedulerPlugin = kindDevice + "/", kindScheduler + "/"
	tests := map[string]string{
		"none": "",

		"it has no name":                               devicePlugin + "name",
		"a method has another type":                    devicePlugin + "abilities",
		"Start returns an error":                       devicePlugin + "starts",
		"UpdateNodeInfo panics":                        devicePlugin + "inventory",
		"a name does not parse":                        devicePlugin + "inventory",
		"a quantity is negative":                       devicePlugin + "inventory",
		"two devices have one ID":                      devicePlugin + "inventory",
		"it replaces the maps":                         devicePlugin + "inventory-adds",
		"it keeps what it was given":                   devicePlugin + "inventory-own",
		"a path is relative":                           devicePlugin + "allocate-valid",
		"the answer has no order":                      devicePlugin + "allocate-same",
		"it leaves a device out":                       devicePlugin + "allocate-all",
		"a goroutine panics":                           devicePlugin + "allocate-all",
		"it gives something for nothing":               devicePlugin + "allocate-none",
		"it accepts an unknown device":                 devicePlugin + "allocate-unknown",
		"it writes into the pod":                       devicePlugin + "allocate-reads",
		"answers share a map":                          devicePlugin + "allocate-own",
		"it hangs for giant requests":                  devicePlugin + "hostile",
		"the inventory differs from call to call":      devicePlugin + "inventory-stable",
		"a variable of the firewall has no valid name": devicePlugin + "firewall",
		"a broken device stays allocatable":            devicePlugin + "health",
		"a broken device has no reason":                devicePlugin + "reasons",
		"a reason is a sentence":                       devicePlugin + "reasons",
		"it says how an unknown device is":             devicePlugin + "reasons",
		"it blocks when its devices' health is read":   devicePlugin + "reasons",
		"it panics when its devices' health is read":   devicePlugin + "reasons",
		"it calls os.Exit when a device is broken":     devicePlugin + "reasons",
		"it does not say why a device is unhealthy":    devicePlugin + "reasons",
		"a device is unhealthy since tomorrow":         devicePlugin + "reasons",
		"a device alone gives nothing":                 devicePlugin + "allocate-each",
		"it always gives the same device":              devicePlugin + "allocate-exact",
		"it calls os.Exit for an unknown device":       devicePlugin + "allocate-unknown",
		"an environment variable has no valid name":    devicePlugin + "allocate-valid",
		"it slices names that it has not checked":      devicePlugin + "hostile",
		"it is not safe for concurrent use":            devicePlugin + "concurrent",
		"IDs differ from process to process":           devicePlugin + "restart",

		"none, with the group scheduler":                    "",
		"the device plugin's entry point returns an error":  devicePlugin + "loads",
		"the scheduler plugin has no name":                  schedulerPlugin + "name",
		"a method of the scheduler plugin has another type": schedulerPlugin + "abilities",
		"it ignores what pods count":                        schedulerPlugin + "fits",
		"it translates by what is used":                     schedulerPlugin + "translator",
		"Revision does not grow":                            schedulerPlugin + "translator",
		"who has waited gets less":                          schedulerPlugin + "after-wait",
		"what prefers refines nothing":                      schedulerPlugin + "preferring",
		"PodGone panics for an unknown pod":                 schedulerPlugin + "observer",
		"the plugins use different levels":                  kindPair + "/pair",

		"the entry point panics":                          schedulerPlugin + "loads",
		"it counts devices by a plain name that is none":  schedulerPlugin + "declarations",
		"AddNode writes a name that does not parse":       schedulerPlugin + "nodes",
		"AddNode renames devices with each call":          schedulerPlugin + "nodes",
		"the score is not a number":                       schedulerPlugin + "score",
		"it replaces what another plugin wrote":           schedulerPlugin + "writes",
		"the answers depend on the order of a map":        schedulerPlugin + "same",
		"it forgets to place":                             schedulerPlugin + "places",
		"it gives away what is used":                      schedulerPlugin + "capacity",
		"it gives fewer than were requested":              schedulerPlugin + "capacity",
		"it gives no reason":                              schedulerPlugin + "reasons",
		"it refuses pods of others":                       schedulerPlugin + "others",
		"what it takes depends on how often it is called": schedulerPlugin + "take-same",
		"it returns nothing":                              schedulerPlugin + "take-return",
		"a device that is gone is an error":               schedulerPlugin + "gone-devices",
		"it depends on the name of the pod":               schedulerPlugin + "pure",
		"it panics for a negative request":                schedulerPlugin + "hostile",
		"it is not safe for concurrent use either":        schedulerPlugin + "concurrent",
		"another process answers otherwise":               schedulerPlugin + "restart",
	}
	found := map[string]bool{}
	for _, check := range tests {
		found[check] = true
	}
	for _, kind := range Kinds() {
		for _, check := range kind.Checks {
			if name := kind.Name + "/" + check.Name; kind.Name != kindKubelet && !found[name] {
				t.Errorf("no fault makes %s fail", name)
			}
		}
	}
	for fault, check := range tests {
		t.Run(fault, func(t *testing.T) {
			dir := t.TempDir()
			broken := filepath.Join(dir, "broken")
			t.Setenv("FAULT", fault)
			t.Setenv("GEARS_BROKEN", broken)
			t.Setenv("GEARS_STARTS", filepath.Join(dir, "starts"))
			options := patient()
			options.Break, options.Repair = fmt.Sprintf("printf g1 >%s", broken), fmt.Sprintf("rm %s", broken)
			report, err := Files(t.Context(), []string{file}, options)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{check}
			if check == "" {
				want = nil
				for _, result := range report.Results {
					if result.Status == NotApplicable && !strings.HasPrefix(result.Reason, "it is n") &&
						!strings.HasPrefix(result.Reason, "it does not say") && result.Check != "firewall" {
						t.Errorf("%s does not apply: %s", result.Check, result.Reason)
					}
				}
			}
			if diff := cmp.Diff(want, failures(report)); diff != "" {
				t.Errorf("checks that failed (-want +got):\n%s%s", diff, text(t, report))
			}
			if _, err := os.Stat(broken); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the device is left broken: %v", err)
			}
			for _, result := range report.Results {
				if (result.Reason == "") != (result.Status == OK) || (result.Fix == "") != (result.Status != Failed) {
					t.Errorf("%s: reason %q, fix %q", result.Check, result.Reason, result.Fix)
				}
			}
			t.Log("\n" + text(t, report))
		})
	}
}

func TestADeviceThatCannotBeRepairedIsReported(t *testing.T) {
	file := buildPlugin(t, ".", "./testdata/faulty")
	broken := filepath.Join(t.TempDir(), "broken")
	t.Setenv("FAULT", "it calls os.Exit when a device is broken")
	t.Setenv("GEARS_BROKEN", broken)
	options := patient()
	options.Break, options.Repair = "printf g1 >"+broken, "echo stuck; false"
	report, err := Files(t.Context(), []string{file}, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		if result.Kind == kindDevice && result.Check == "reasons" &&
			!(strings.Contains(result.Reason, "it ended the process that called it: exit status 3; "+
				"a device may still be broken") && strings.Contains(result.Reason, "stuck")) {
			t.Errorf("%s: %s", result.Status, result.Reason)
		}
	}
}

// TestADeviceIsRepairedWhenTheTestIsInterrupted interrupts while the check waits for a plugin that
// notices nothing.
func TestADeviceIsRepairedWhenTheTestIsInterrupted(t *testing.T) {
	file := buildPlugin(t, ".", "./testdata/faulty")
	for name, test := range map[string]struct{ repair, want string }{
		"it can be repaired":    {repair: "rm -f $GEARS_BROKEN"},
		"it cannot be repaired": {repair: "false", want: "a device may still be broken"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			broken, said := filepath.Join(dir, "broken"), filepath.Join(dir, "said")
			if err := syscall.Mkfifo(said, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("FAULT", "a broken device stays allocatable")
			t.Setenv("GEARS_BROKEN", broken)
			options := patient()
			options.Limits.Health = time.Minute
			options.Break, options.Repair = fmt.Sprintf("printf g1 >%s; : >%s", broken, said), test.repair
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			waiting.Go(func() {
				defer cancel()
				_, _ = os.ReadFile(said) // ends when the device is broken
			})
			_, err := Files(ctx, []string{file}, options)
			waiting.Wait()
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: %v, want %q", err, test.want)
			}
			if _, err := os.Stat(broken); errors.Is(err, fs.ErrNotExist) != (test.want == "") {
				t.Errorf("what says that the device is broken: %v", err)
			}
		})
	}
}

func TestAKnownFailureIsNoFailure(t *testing.T) {
	report := &Report{Results: []Result{
		{Check: "allocate-exact", Status: Failed, Reason: "all are the same", Fix: "do"},
		{Check: "name", Status: Failed, Reason: "it is empty", Fix: "do"},
		{Check: "starts", Status: OK},
	}}
	if err := report.Accept(map[string]string{"allocate-exakt": "?"}); err == nil {
		t.Error("a check that does not exist is accepted")
	}
	if err := report.Accept(map[string]string{"allocate-exact": "only a count", "starts": "?"}); err != nil {
		t.Fatal(err)
	}
	if report.Count(Known) != 1 || report.Count(Failed) != 1 || report.Count(OK) != 1 {
		t.Error(text(t, report))
	}
}

func TestTwoPluginsOfOneKindAreNoPair(t *testing.T) {
	file := buildPlugin(t, ".", "./testdata/faulty")
	if _, err := Files(t.Context(), []string{file, file}, patient()); err == nil ||
		!strings.Contains(err.Error(), "test one pair") {
		t.Errorf("error: %v", err)
	}
}

func TestAFileThatIsNoPluginIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(file, []byte("not a plugin"), 0o644); err != nil {
		t.Fatal(err)
	}
	report, err := Files(t.Context(), []string{file}, patient())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{kindUnknown + "/" + loads}, failures(report)); diff != "" || len(report.Results) != 1 {
		t.Errorf("%s%s", diff, text(t, report))
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// me is a process that runs as long as the test.
func me(t *testing.T) process {
	t.Helper()
	p, err := processOf("/proc/" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheAuditorFindsSharedDevicesAndBareContainers(t *testing.T) {
	here := me(t)
	other := process{pid: here.pid, start: "0"} // which is not there any more
	running := func(containers ...Container) map[string]Container {
		all := map[string]Container{}
		for _, c := range containers {
			all[c.ID] = c
		}
		return all
	}
	a := Container{ID: "a", PodUID: "pod-a", init: here, Devices: []string{"gpu-0", "gpu-1"}}
	for name, test := range map[string]struct {
		readings      []map[string]Container
		mayEnd        []string
		quick         bool // no time passes between the readings
		cutOff        int
		shared, ended string // what is said of them
		bare          int    // how many of those that ended had no device
	}{
		"everything passes": {
			readings: []map[string]Container{
				running(a), running(a, Container{ID: "b", init: here, Devices: []string{"gpu-2"}}),
			},
		},
		"two containers have a device": {
			readings: []map[string]Container{running(a, Container{ID: "b", PodUID: "pod-b", init: here,
				Devices: []string{"gpu-1"}})}, shared: "device gpu-1: containers a and b of pods pod-a and pod-b",
		},
		"the one had ended before the other had it": {
			readings: []map[string]Container{running(a, Container{ID: "b", init: other, Devices: []string{"gpu-1"}})},
		},
		"a container ends": {
			readings: []map[string]Container{running(a), running()}, ended: "container a of pod pod-a",
		},
		"a container without a device ends": {
			readings: []map[string]Container{running(Container{ID: "a", PodUID: "pod-a", init: here}), running()},
			ended:    "container a of pod pod-a", bare: 1,
		},
		"a container ends while it is started": {
			readings: []map[string]Container{running(a), running()}, quick: true, cutOff: 1,
		},
		"a container has another process at once": {
			readings: []map[string]Container{running(a), running(Container{ID: "a", PodUID: "pod-a", init: other})},
			quick:    true, ended: "container a of pod pod-a",
		},
		"a container ends whose pod is being deleted": {
			readings: []map[string]Container{running(a), running()}, mayEnd: []string{"pod-a"},
		},
		"a container has another process": {
			readings: []map[string]Container{running(a), running(Container{ID: "a", PodUID: "pod-a", init: other})},
			ended:    "container a of pod pod-a",
		},
		"a container ends and comes back as another": {
			readings: []map[string]Container{running(a), running(Container{ID: "b", PodUID: "pod-a", init: here})},
			ended:    "container a of pod pod-a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inspect := 0
			audit := New(func() (map[string]Container, error) {
				inspect = min(inspect+1, len(test.readings))
				return test.readings[inspect-1], nil
			})
			var clock time.Time
			audit.now = func() time.Time {
				if !test.quick {
					clock = clock.Add(startTime)
				}
				return clock
			}
			audit.MayEnd(test.mayEnd...)
			for range test.readings {
				if err := audit.inspect(); err != nil {
					t.Fatal(err)
				}
			}
			found, now, err := audit.Report()
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "shared", found.Shared, test.shared)
			expect(t, "ended", found.Ended, test.ended)
			if len(found.Bare) != test.bare {
				t.Errorf("without a device ended %q, want %d", found.Bare, test.bare)
			}
			if found.CutOff != test.cutOff {
				t.Errorf("%d starts were cut off, want %d", found.CutOff, test.cutOff)
			}
			if diff := cmp.Diff(len(test.readings[len(test.readings)-1]), len(now)); diff != "" {
				t.Errorf("containers that run (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheTimesOfContainersAreKept(t *testing.T) {
	var clock time.Time
	runs := map[string]Container{"a": {ID: "a", PodUID: "pod", init: me(t)}}
	audit := New(func() (map[string]Container, error) { return runs, nil })
	audit.now = func() time.Time { return clock }
	audit.MayEnd("pod")
	for second := range 6 {
		clock = time.Unix(int64(second), 0)
		switch second {
		case 2:
			runs = nil
		case 4:
			runs = map[string]Container{"b": {ID: "b", PodUID: "pod", init: me(t)}}
		}
		if err := audit.inspect(); err != nil {
			t.Fatal(err)
		}
	}
	for second, want := range []bool{true, true, false, false, true, true, true} {
		if got := audit.RanAt("pod", time.Unix(int64(second), 0)); got != want {
			t.Errorf("second %d: %t, want %t", second, got, want)
		}
	}
	if audit.RanAt("another", time.Unix(1, 0)) {
		t.Error("a pod that was never seen ran")
	}
}

// expect fails the test unless nothing was found where nothing is said, and one thing that says it
// otherwise.
func expect(t *testing.T, what string, found []string, says string) {
	t.Helper()
	if says == "" && len(found) > 0 || says != "" && (len(found) != 1 || !strings.Contains(found[0], says)) {
		t.Errorf("%s: found %q, want one that says %q", what, found, says)
	}
}

func TestAProcessIsNotMistakenForAnother(t *testing.T) {
	if !me(t).runs() {
		t.Error("the test itself does not run")
	}
	command := exec.Command("sleep", "86400")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	child, err := processOf("/proc/" + strconv.Itoa(command.Process.Pid))
	if err != nil || !child.runs() {
		t.Errorf("a child that runs: %v, %v", child, err)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil || child.runs() {
		t.Errorf("a child that has ended (%v) runs: %v", err, child.runs())
	}
	if (process{pid: os.Getpid(), start: "0"}).runs() {
		t.Error("a process that had this one's id before runs")
	}
}

func TestContainersAreFoundByTheirCgroups(t *testing.T) {
	const uid, id = "4f0c2c1e-9a37-4c0e-8d4e-1b1f0a6d2f11",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, test := range map[string]struct {
		lines string
		found bool
	}{
		"version 2":            {"0::/kubedevice-1/node-1/kubepods/besteffort/pod" + uid + "/" + id + "\n", true},
		"version 1":            {"3:cpu,cpuacct:/kubedevice-1/node-1/kubepods/pod" + uid + "/" + id + "\n0::/\n", true},
		"a pod's own":          {"0::/kubedevice-1/node-1/kubepods/pod" + uid + "\n", false},
		"a daemon of the node": {"0::/kubedevice-1/node-1/daemons\n", false},
	} {
		match := inCgroup.FindStringSubmatch(test.lines)
		if (match != nil) != test.found || test.found && (match[1] != uid || match[2] != id) {
			t.Errorf("%s: found %q", name, match)
		}
	}
}

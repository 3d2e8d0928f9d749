// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// quad has four GPUs.
func quad() nvmltest.Machine {
	return nvmltest.Machine{Ancestor: nvmltest.Matrix(4, func(_, _ int) int { return pix })}
}

// releasable returns a device, and functions that have it let go of the driver and take it up.
func releasable(t *testing.T, library nvmltest.Library) (d *Device, release, take func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "release")
	d = startedAt(t, Paths{NVML: library.Path, Faults: filepath.Join(t.TempDir(), "faults"), Release: file})
	release = func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	take = func() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	return d, release, take
}

// isOpen reports whether this process has the library open.
func isOpen(t *testing.T, library nvmltest.Library) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), library.Path)
}

var allReleased = map[int]string{0: reasonReleased, 1: reasonReleased, 2: reasonReleased, 3: reasonReleased}

func TestTheDriverIsReplacedWhileThePluginRuns(t *testing.T) {
	library := nvmltest.Build(t, quad())
	d, release, take := releasable(t, library)
	check := func(when string, open bool, want map[int]string) {
		t.Helper()
		got := healthOf(t, d)
		if diff := cmp.Diff(want, got); diff != "" || isOpen(t, library) != open {
			t.Errorf("%s the library is open: %v, want %v; unhealthy GPUs (-want +got):\n%s", when, !open, open, diff)
		}
	}
	check("at first", true, map[int]string{})
	library.Break(t, 1, 48)
	check("with an XID", true, map[int]string{1: "Xid48"})

	release()
	check("released", false, allReleased)
	check("later", false, allReleased)
	if usage, err := d.DeviceUsage(); len(usage) > 0 || err != nil {
		t.Errorf("released, the usage is %v (%v)", usage, err)
	}

	// The driver is unloaded, and then there is another one, which has a GPU less.
	if err := os.Rename(library.Path, library.Path+".old"); err != nil {
		t.Fatal(err)
	}
	take()
	check("without a driver", false, allReleased)
	next := nvmltest.Build(t, quad())
	next.Lose(t, 3)
	if err := os.Rename(next.Path, library.Path); err != nil {
		t.Fatal(err)
	}
	check("taken up", true, map[int]string{1: "Xid48", 3: "Lost"})
	next.Break(t, 0, 62)
	check("with another XID", true, map[int]string{0: "Xid62", 1: "Xid48", 3: "Lost"})

	release()
	check("released again", false, allReleased)
	take()
	check("taken up again", true, map[int]string{0: "Xid62", 1: "Xid48", 3: "Lost"})
}

func TestAReleasedDriverIsNotOpenedAtTheStart(t *testing.T) {
	library := nvmltest.Build(t, quad())
	file := filepath.Join(t.TempDir(), "release")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := New(Paths{NVML: library.Path, Release: file})
	if err := d.Start(); err == nil || !strings.Contains(err.Error(), "kubecri driver take") || isOpen(t, library) {
		t.Errorf("Start returns %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Error(err)
	}
}

func TestInstancesAreReleasedWithTheirGPU(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("1g.10gb", 0)}})
	d := configured(t, library, "")
	d.paths.Release = filepath.Join(t.TempDir(), "release")
	update(t, d)
	if err := os.WriteFile(d.paths.Release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, quantity := range update(t, d).Allocatable {
		if quantity > 0 {
			t.Errorf("released, %d of %s are allocatable", quantity, name)
		}
	}
	list, err := d.DeviceHealth()
	if err != nil || len(list) == 0 {
		t.Errorf("the health is %v (%v)", list, err)
	}
	for _, h := range list {
		if h.Healthy || h.Reason != reasonReleased {
			t.Errorf("%s is %+v", h.Device, h)
		}
	}
	if err := os.Remove(d.paths.Release); err != nil {
		t.Fatal(err)
	}
	allocatable := 0
	for _, quantity := range update(t, d).Allocatable {
		if quantity > 0 {
			allocatable++
		}
	}
	if allocatable == 0 {
		t.Error("taken up, nothing is allocatable")
	}
}

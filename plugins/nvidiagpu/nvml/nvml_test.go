// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

func TestDevicesAreReadFromNVML(t *testing.T) {
	fake := nvmltest.Build(t, nvmltest.Machine{
		Ancestor: [][]int{{0, 20, 50}, {20, 0, 50}, {50, 50, 0}},
		NVLink:   [][]bool{{false, false, true}, {false, false, false}, {true, false, false}},
	})
	library, err := nvml.Open(fake.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := library.Close(); err != nil {
			t.Error(err)
		}
	}()
	if count, err := library.Count(); count != 3 || err != nil {
		t.Fatalf("Count = %d, %v", count, err)
	}
	var devices []nvml.Device
	for i := range 3 {
		d, err := library.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		if uuid, err := d.UUID(); uuid != nvmltest.UUID(i) || err != nil {
			t.Errorf("UUID = %q, %v", uuid, err)
		}
		if memory, err := d.Memory(); memory != nvmltest.Memory || err != nil {
			t.Errorf("Memory = %d, %v", memory, err)
		}
		devices = append(devices, d)
	}
	if level, err := nvml.CommonAncestor(devices[0], devices[1]); level != nvml.SeveralSwitches || err != nil {
		t.Errorf("CommonAncestor = %d, %v", level, err)
	}
	if linked, err := nvml.NVLinked(devices[0], devices[2]); !linked || err != nil {
		t.Errorf("0 and 2: NVLinked = %v, %v", linked, err)
	}
	if linked, err := nvml.NVLinked(devices[0], devices[1]); linked || err != nil {
		t.Errorf("0 and 1: NVLinked = %v, %v", linked, err)
	}
	if _, err := library.Device(3); err == nil || !strings.HasPrefix(err.Error(), "find GPU number 3: NVML: ") {
		t.Errorf("Device(3): %v", err)
	}

	fake.Lose(t, 1)
	_, err = devices[1].UUID()
	if nvmlErr := new(nvml.Error); !errors.As(err, &nvmlErr) || nvmlErr.Code != 15 ||
		err.Error() != "query a GPU for its UUID: NVML: GPU is lost" {
		t.Errorf("UUID of a lost GPU: %v", err)
	}
}

// A pod may request all memory that its node publishes, so it must be what programs can allocate.
// The fake's total has what the driver reserves in addition, unless its driver is too old to say
// that.
func TestMemoryIsWithoutWhatTheDriverReserves(t *testing.T) {
	for name, old := range map[string]bool{"a driver that says what it reserves": false, "a driver before 510": true} {
		t.Run(name, func(t *testing.T) {
			fake := nvmltest.Build(t, nvmltest.Machine{Ancestor: [][]int{{0}}, OldDriver: old})
			library, err := nvml.Open(fake.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer library.Close()
			device, err := library.Device(0)
			if err != nil {
				t.Fatal(err)
			}
			if memory, err := device.Memory(); memory != nvmltest.Memory || err != nil {
				t.Errorf("Memory = %d, %v, want %d", memory, err, int64(nvmltest.Memory))
			}
		})
	}
}

func TestAnOldDriverKnowsNoTopology(t *testing.T) {
	library, err := nvml.Open(
		nvmltest.Build(t, nvmltest.Machine{Ancestor: [][]int{{0, 0}, {0, 0}}, OldDriver: true}).Path,
	)
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	a, errA := library.Device(0)
	b, errB := library.Device(1)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if linked, err := nvml.NVLinked(a, b); linked || err != nil {
		t.Errorf("NVLinked = %v, %v", linked, err)
	}
	_, err = nvml.CommonAncestor(a, b)
	if nvmlErr := new(nvml.Error); !errors.As(err, &nvmlErr) || nvmlErr.Code != nvml.FunctionNotFound {
		t.Errorf("CommonAncestor: %v", err)
	}
}

func TestALibraryThatCannotBeUsedIsAnError(t *testing.T) {
	const driverNotLoaded = 9
	tests := map[string]struct{ path, want string }{
		"no library": {
			"libnvidia-ml-that-is-not-there.so.1",
			"libnvidia-ml-that-is-not-there.so.1: cannot open shared object file",
		},
		"another library": {"libm.so.6", "undefined symbol: nvmlInit_v2"},
		"no driver behind it": {
			nvmltest.Build(t, nvmltest.Machine{Ancestor: [][]int{{0}}, Init: driverNotLoaded}).Path,
			"initialise: NVML: Driver Not Loaded",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := nvml.Open(test.path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open = %v, want %s", err, test.want)
			}
		})
	}
}

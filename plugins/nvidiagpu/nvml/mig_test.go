// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// partitionable is a machine with GPUs of a model.
func partitionable(count int, model mig.Model) nvmltest.Machine {
	return nvmltest.Machine{Ancestor: nvmltest.Matrix(count, func(_, _ int) int { return 30 }), Model: model}
}

// open opens a fake library, and returns its GPUs.
func open(t *testing.T, path string) (gpus []nvml.Device) {
	t.Helper()
	library, err := nvml.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := library.Close(); err != nil {
			t.Error(err)
		}
	})
	count, err := library.Count()
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		d, err := library.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, d)
	}
	return gpus
}

func TestInstancesAreRead(t *testing.T) {
	fake := nvmltest.Build(t, partitionable(2, mig.H100With80GB()))
	shared := fake.At("3g.40gb", 4)
	shared.Compute = []int{1, 2}
	fake.Partition(t, map[int][]nvmltest.Part{1: {fake.At("1g.10gb", 0), fake.At("1g.10gb+me", 2), shared}})
	gpus := open(t, fake.Path)

	for i, want := range []bool{false, true} {
		if got, err := gpus[i].Partitioned(); got != want || err != nil {
			t.Errorf("GPU %d: Partitioned = %v, %v", i, got, err)
		}
	}
	got, err := gpus[1].Instances()
	want := []nvml.Instance{
		{UUID: nvmltest.InstanceUUID(1, 1, 0), GPUInstance: 1, Profile: "1g.10gb", Place: mig.Place{Size: 1}},
		{
			UUID: nvmltest.InstanceUUID(1, 2, 0), GPUInstance: 2, Profile: "1g.10gb+me",
			Place: mig.Place{Start: 2, Size: 1},
		},
		{
			UUID: nvmltest.InstanceUUID(1, 3, 0), GPUInstance: 3, Profile: "1c.3g.40gb",
			Place: mig.Place{Start: 4, Size: 4},
		},
		{
			UUID: nvmltest.InstanceUUID(1, 3, 1), GPUInstance: 3, ComputeInstance: 1, Profile: "2c.3g.40gb",
			Place: mig.Place{Start: 4, Size: 4},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Instances: %v (-want +got):\n%s", err, diff)
	}
	if minor, err := gpus[1].Minor(); minor != 1 || err != nil {
		t.Errorf("Minor = %d, %v", minor, err)
	}
}

func TestProfilesAreRead(t *testing.T) {
	for _, model := range []mig.Model{mig.A100With40GB(), mig.A100With80GB(), mig.H100With80GB(), {}} {
		gpus := open(t, nvmltest.Build(t, partitionable(1, model)).Path)
		got, err := gpus[0].Profiles()
		if diff := cmp.Diff(model.Profiles, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", model.Name, err, diff)
		}
	}
}

func TestAGPUWithoutMIGIsNotPartitioned(t *testing.T) {
	old := partitionable(1, mig.H100With80GB())
	old.OldDriver = true
	for name, machine := range map[string]nvmltest.Machine{"a GPU": partitionable(1, mig.Model{}), "a driver": old} {
		partitioned, err := open(t, nvmltest.Build(t, machine).Path)[0].Partitioned()
		if partitioned || err != nil {
			t.Errorf("%s without MIG: %v, %v", name, partitioned, err)
		}
	}
}

func TestInstancesAreCreated(t *testing.T) {
	model := mig.H100With80GB()
	fake := nvmltest.Build(t, partitionable(1, model))
	fake.Partition(t, map[int][]nvmltest.Part{0: {fake.At("1g.10gb", 0)}})
	d := open(t, fake.Path)[0]
	half := model.Profiles[2]

	if _, err := d.CreateGPUInstance(half, mig.Place{Size: 4}); err == nil {
		t.Error("an instance that overlaps another was created")
	}
	id, err := d.CreateGPUInstance(half, mig.Place{Start: 4, Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := d.GPUInstances(); err != nil || len(list) != 2 {
		t.Errorf("GPUInstances = %+v, %v", list, err)
	}
	if list, err := d.Instances(); err != nil || len(list) != 1 {
		t.Errorf("before it has a compute instance: Instances = %+v, %v", list, err)
	}
	if err := d.CreateComputeInstance(id, half); err != nil {
		t.Fatal(err)
	}
	list, err := d.Instances()
	if err != nil || len(list) != 2 || list[1].Profile != "3g.40gb" || list[1].Place.Start != 4 {
		t.Errorf("Instances = %+v, %v", list, err)
	}
	if err := d.CreateComputeInstance(id, half); err == nil {
		t.Error("a second compute instance of all of it was created")
	}
}

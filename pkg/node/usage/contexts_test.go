// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func TestTheLongestPartOfAModelsNameSaysWhatAContextTakes(t *testing.T) {
	table := ContextMemory{AnyModel: 1, "H100": 2, "h100 NVL": 3, "A100": 4}
	for model, want := range map[string]int64{
		"NVIDIA H100 80GB HBM3": 2, "NVIDIA H100 NVL": 3, "nvidia a100-sxm4-40gb": 4, "Tesla T4": 1, "": 1,
	} {
		if got := table.Of(model); got != want {
			t.Errorf("of %q a context takes %d, want %d", model, got, want)
		}
	}
	if got := (ContextMemory{"H100": 2}).Of("Tesla T4"); got != 0 {
		t.Errorf("of a model without an entry a context takes %d", got)
	}
}

func TestContextMemoryIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]ContextMemory{
		"": {}, "*=1Gi": {AnyModel: 1 << 30}, " H100 NVL = 518Mi ,*=0": {"H100 NVL": 518 << 20, AnyModel: 0},
	} {
		got := DefaultContextMemory()
		if err := got.Set(text); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q is %v (%v), want %v", text, got, err, want)
		}
		var again ContextMemory
		if err := again.Set(got.String()); err != nil || !cmp.Equal(got, again) {
			t.Errorf("%q is written as %q, which is %v (%v)", text, got.String(), again, err)
		}
	}
	for _, text := range []string{"H100", "=1Gi", "H100=x", "H100=-1", "H100=1,H100=2", "*=1Gi;H100=1"} {
		got := DefaultContextMemory()
		if err := got.Set(text); err == nil || !cmp.Equal(got, DefaultContextMemory()) {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestTheContextsOfAContainersFirstProcessesDoNotCount(t *testing.T) {
	const context, own = 10, 3
	var c Container
	c.Share = device.Read(20 * own)
	for n := 1; n <= MaxContexts+4; n++ {
		c.Memory = device.Read(0)
		c.Consumption = Consumption{Memory: device.Read(0)}
		for range n {
			c.add(device.ProcessUsage{Memory: device.Read(context + own)}, context)
		}
		want := int64(max(0, n*(context+own)-min(n, MaxContexts)*context-20*own))
		if got := c.Exceeds(); got != want {
			t.Errorf("%d processes exceed the share by %d, want %d", n, got, want)
		}
	}
	small := Consumption{Memory: device.Read(0)}
	small.add(device.ProcessUsage{Memory: device.Read(4)}, context)
	small.add(device.ProcessUsage{}, context)
	if small.Contexts != 4 {
		t.Errorf("of a process that uses 4, and one of unknown memory, %d are contexts", small.Contexts)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const qat types.ResourceName = "intel.com/qat"

func TestReadsTheHoldersFromTheKubeletsCheckpoint(t *testing.T) {
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	const content = `{"Data":{"PodDeviceEntries":[
		{"PodUID":"u","ContainerName":"c","ResourceName":"intel.com/qat","DeviceIDs":{"-1":["b","a"]}},
		{"PodUID":"v","ContainerName":"c","ResourceName":"a.b/c","DeviceIDs":{"0":["x"],"1":["x"]}}
	],"RegisteredDevices":{"z.y/x":["1"],"intel.com/qat":[]}},"Checksum":1}`
	if err := os.WriteFile(checkpoint, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := Read(checkpoint)
	want := State{Resources: []types.ResourceName{qat, "z.y/x"}, Holdings: []Holding{
		{PodUID: "u", Container: "c", Resource: qat, IDs: []string{"a", "b"}, NUMA: map[string][]int{}},
		{PodUID: "v", Container: "c", Resource: "a.b/c", IDs: []string{"x"}, NUMA: map[string][]int{"x": {0, 1}}},
	}}
	if diff := cmp.Diff(want, state); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	state.Holdings = append(state.Holdings,
		Holding{PodUID: "w", Container: "c", Resource: qat, IDs: []string{"d"}, Placeholder: true})
	for _, test := range []struct {
		pod, container, id string
		want               bool
	}{
		{"u", "c", "a", true}, {"u", "c", "b", true}, {"u", "c", "x", false}, {"u", "d", "a", false},
		{"v", "c", "a", false}, {"w", "c", "d", false},
	} {
		// In other groups than before.
		device := types.ResourceName("resource/group/numa/1/intel.com:qat/" + test.id + "/device")
		if got := state.Allocated(test.pod, test.container, device); got != test.want {
			t.Errorf("that the kubelet allocated %s to container %s of pod %s is %t", test.id, test.container, test.pod,
				got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"Data":{"RegisteredDevices":{"intel.com/qat":["a","b"]}}}`))
	f.Add([]byte(`{"Data":{"RegisteredDevices":[]}}`))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"u","DeviceIDs":{"-1":["a"]}}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "checkpoint")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		state, err := Read(path)
		if err != nil && (state.Resources != nil || state.Holdings != nil) {
			t.Errorf("%q was read as %v, %v", raw, state, err)
		}
		if !slices.IsSorted(state.Resources) {
			t.Errorf("%q was read as %v", raw, state)
		}
	})
}

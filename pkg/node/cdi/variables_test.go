// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVariablesHaveADeviceOfTheSameNameInEachProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	v := NewVariables(dir)
	if err := v.Remove(); err != nil {
		t.Errorf("there is nothing to remove: %v", err)
	}
	first, err := v.Device([]string{"A=void", "B="})
	if err != nil {
		t.Fatal(err)
	}
	second, err := v.Device([]string{"A=void"})
	if err != nil || second == first {
		t.Errorf("other variables have the device %q, too: %v", second, err)
	}
	var file struct {
		Kind    string
		Devices []struct {
			Name           string
			ContainerEdits struct{ Env []string }
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "kubedevice-variables.json"))
	if err == nil {
		err = json.Unmarshal(raw, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, device := range file.Devices {
		found[file.Kind+"="+device.Name] = strings.Join(device.ContainerEdits.Env, " ")
	}
	if len(found) != 2 || found[first] != "A=void B=" || found[second] != "A=void" {
		t.Errorf("the file has %v", found)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v: %v", entries, err)
	}
	if again, err := NewVariables(dir).Device([]string{"A=void", "B="}); err != nil || again != first {
		t.Errorf("after a restart: %q, %v", again, err)
	}
	if err := v.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubedevice-variables.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestVariablesThatCannotBeWrittenHaveNoDevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v := NewVariables(file)
	for range 2 { // the first does not count as written
		if device, err := v.Device([]string{"A=void"}); err == nil {
			t.Errorf("device %q", device)
		}
	}
}

// Pods decide how many sets of variables there are: one more is never refused for that.
func TestTheDeviceThatWasUsedLeastRecentlyIsDroppedForAnother(t *testing.T) {
	v := NewVariables(t.TempDir())
	v.devices = map[string][]string{}
	name := func(i int) string { return nameOf([]string{fmt.Sprint("A=", i)}) }
	for i := range maxVariables {
		v.devices[name(i)] = []string{fmt.Sprint("A=", i)}
		v.uses++
		v.used[name(i)] = v.uses
	}
	if _, err := v.Device([]string{"A=0"}); err != nil { // it is used again
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := v.Device([]string{fmt.Sprint("B=", i)}); err != nil {
			t.Errorf("one more is refused: %v", err)
		}
	}
	for i, want := range []bool{true, false, false, false, true} {
		if _, got := v.devices[name(i)]; got != want {
			t.Errorf("device %d is there: %t, want %t", i, got, want)
		}
	}
	if len(v.devices) != maxVariables || len(v.used) != maxVariables {
		t.Errorf("%d devices, of which %d were used; want %d", len(v.devices), len(v.used), maxVariables)
	}
	if device, err := v.Device([]string{"A=1"}); err != nil || device != VariablesKind+"="+name(1) {
		t.Errorf("a container that is tried again has %q, %v", device, err)
	}
}

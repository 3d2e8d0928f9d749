// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
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

func TestTheNumberOfDevicesForVariablesIsBounded(t *testing.T) {
	v := NewVariables(t.TempDir())
	v.devices = map[string][]string{}
	for i := range maxVariables {
		v.devices[strings.Repeat("x", i)] = nil
	}
	if _, err := v.Device([]string{"A=void"}); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("one more: %v", err)
	}
}

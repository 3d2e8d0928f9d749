// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// VariablesKind is the kind of CDI devices that hold variables and nothing else, and SpecDir the
// directory in which runtimes search specifications that do not outlive a boot.
const (
	VariablesKind = "kubedevice.io/variables"
	SpecDir       = "/var/run/cdi"

	variablesFile = "kubedevice-variables.json"
)

// maxVariables is how many devices the file has at most: a multiple of the containers that a node
// creates at the same time. Each set of variables that has stood in the way of an adjustment of
// NRI's has one; the values are device plugins', and pods decide how many sets there are.
const maxVariables = 1024

// Variables are CDI devices that set variables in a container after everything else has. A runtime
// follows changes of the directory, so a container may come before its device is known there: the
// runtime refuses it then, and the kubelet tries again. A runtime reads a device when it creates a
// container, and not afterwards, so that the device which was used least recently makes room for a
// new one. All methods are safe for concurrent use.
type Variables struct {
	dir string

	mu      sync.Mutex
	devices map[string][]string // variables by the device's name; nil before the file is written
	uses    int64               // of all devices
	used    map[string]int64    // the number of each device's last use
}

// NewVariables returns Variables with a file in the directory, and no file yet.
func NewVariables(dir string) *Variables {
	return &Variables{dir: dir, used: map[string]int64{}}
}

// Device returns the qualified name of a device that sets the variables, each as name=value.
func (v *Variables) Device(variables []string) (string, error) {
	name := nameOf(variables)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, is := v.devices[name]; !is {
		devices, dropped := v.withRoom()
		devices[name] = slices.Clone(variables)
		if err := v.write(devices); err != nil {
			return "", fmt.Errorf("CDI devices for variables: %w", err)
		}
		v.devices = devices
		delete(v.used, dropped)
	}
	v.uses++
	v.used[name] = v.uses
	return VariablesKind + "=" + name, nil
}

// withRoom returns the devices with room for one more, and the one that it has left out for that.
func (v *Variables) withRoom() (devices map[string][]string, dropped string) {
	devices = maps.Clone(v.devices)
	if devices == nil {
		devices = map[string][]string{}
	}
	if len(devices) < maxVariables {
		return devices, ""
	}
	oldest := v.uses + 1
	for name := range devices {
		if v.used[name] < oldest {
			oldest, dropped = v.used[name], name
		}
	}
	delete(devices, dropped)
	return devices, dropped
}

// nameOf returns the name of the device that sets the variables: the same for the same, so that a
// container that is tried again finds it.
func nameOf(variables []string) string {
	sum := sha256.Sum256([]byte(strings.Join(variables, "\x00")))
	return "v" + hex.EncodeToString(sum[:16])
}

// Remove removes the file of an earlier process.
func (v *Variables) Remove() error {
	if err := os.Remove(filepath.Join(v.dir, variablesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (v *Variables) write(devices map[string][]string) error {
	type edits struct {
		Env []string `json:"env"`
	}
	type device struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	}
	specification := struct {
		Version string   `json:"cdiVersion"`
		Kind    string   `json:"kind"`
		Devices []device `json:"devices"`
	}{Version: "0.5.0", Kind: VariablesKind}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		specification.Devices = append(specification.Devices, device{name, edits{devices[name]}})
	}
	raw, err := json.Marshal(specification)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(v.dir, 0o755); err != nil {
		return err
	}
	// Runtimes read files of the directory whose names end with .json or .yaml.
	file := filepath.Join(v.dir, variablesFile)
	if err := os.WriteFile(file+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

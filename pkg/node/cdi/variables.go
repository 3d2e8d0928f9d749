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

// maxVariables is how many devices the file has at most. Each set of variables that has stood in
// the way of an adjustment of NRI's has one; the values are device plugins'.
const maxVariables = 4096

// Variables are CDI devices that set variables in a container after everything else has. A runtime
// follows changes of the directory, so a container may come before its device is known there: the
// runtime refuses it then, and the kubelet tries again. All methods are safe for concurrent use.
type Variables struct {
	dir string

	mu      sync.Mutex
	devices map[string][]string // variables by the device's name; nil before the file is written
}

// NewVariables returns Variables with a file in the directory, and no file yet.
func NewVariables(dir string) *Variables { return &Variables{dir: dir} }

// Device returns the qualified name of a device that sets the variables, each as name=value.
func (v *Variables) Device(variables []string) (string, error) {
	name := nameOf(variables)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, is := v.devices[name]; !is {
		if len(v.devices) >= maxVariables {
			return "", fmt.Errorf("CDI devices for variables: there are %d, and no more are made; restart kubecri",
				maxVariables)
		}
		devices := maps.Clone(v.devices)
		if devices == nil {
			devices = map[string][]string{}
		}
		devices[name] = slices.Clone(variables)
		if err := v.write(devices); err != nil {
			return "", fmt.Errorf("CDI devices for variables: %w", err)
		}
		v.devices = devices
	}
	return VariablesKind + "=" + name, nil
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

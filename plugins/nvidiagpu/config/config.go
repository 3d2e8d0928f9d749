// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the configuration file of a node with NVIDIA's GPUs: the one that NVIDIA's
// device plugin reads, version v1. It is read strictly. What the file requests is done, or it is an
// error that names the field; nothing that would be done otherwise is left out.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// DefaultFile is where the configuration is when nothing else is said.
const DefaultFile = "/etc/kubedevice/nvidiagpu.yaml"

// Strategy says how instances of partitioned GPUs are counted, by the words of NVIDIA's plugin.
type Strategy string

// The strategies.
const (
	// None offers no partitioned GPU and no instance.
	None Strategy = "none"
	// Single counts instances in the place of GPUs. All GPUs of the node have instances of one
	// profile.
	Single Strategy = "single"
	// Mixed counts instances by their profiles.
	Mixed Strategy = "mixed"
)

// Config is the configuration of a node.
type Config struct {
	// MIG is the strategy for partitioned GPUs. Without a file it is Mixed; with one that does not
	// name it, None, as in NVIDIA's plugin.
	MIG Strategy
	// EnvVar says that containers get the list of their devices by an environment variable,
	// VolumeMounts that they get it by mounts, and CDI that they get the CDI devices of their
	// UUIDs. One or more are set.
	EnvVar, VolumeMounts, CDI bool
	// PassDeviceSpecs says that containers get the device nodes, too.
	PassDeviceSpecs bool
	// Layouts say which instances the plugin creates. Without any it creates none.
	Layouts []Layout
	// Notes say in words which fields have no effect here, and why that is right.
	Notes []string
}

// Layout is the GPU instances that partitioned GPUs should have.
type Layout struct {
	// GPUs are the UUIDs of the GPUs. Without any it is for all that no layout before it is for.
	GPUs []string
	// Profiles are those of the instances, in the order in which they are created, each as often as
	// there should be instances of it.
	Profiles []string
	// ReplaceIdle says that instances which no pod holds may be destroyed to make room for those of
	// the layout.
	ReplaceIdle bool
}

// String returns the strategies of the configuration, by the words of the file.
func (c Config) String() string {
	var lists []string
	for word, is := range map[string]bool{"envvar": c.EnvVar, "volume-mounts": c.VolumeMounts, "cdi-cri": c.CDI} {
		if is {
			lists = append(lists, word)
		}
	}
	slices.Sort(lists)
	return fmt.Sprintf("migStrategy %s, deviceListStrategy %s, passDeviceSpecs %t, %d migLayouts", c.MIG,
		strings.Join(lists, " and "), c.PassDeviceSpecs, len(c.Layouts))
}

// LayoutOf returns the layout of a GPU; ok is false where none is for it.
func (c Config) LayoutOf(uuid string) (layout Layout, ok bool) {
	for _, layout := range c.Layouts {
		if len(layout.GPUs) == 0 || slices.Contains(layout.GPUs, uuid) {
			return layout, true
		}
	}
	return Layout{}, false
}

// Default is the configuration of a node without a file.
func Default() Config { return Config{MIG: Mixed, EnvVar: true} }

// Read reads a file. One that is not there is Default.
func Read(path string) (Config, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Default(), nil
	}
	if err != nil {
		return Config{}, err
	}
	config, err := Parse(content)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

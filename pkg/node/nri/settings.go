// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/crio"
)

// Settings are what the configuration of a container runtime says of its default validator.
type Settings struct {
	// Enabled says that it is on.
	Enabled bool
	// Required are the plugins that all containers require, whichever their pods require.
	Required []string
	// Tolerated is the annotation of a pod whose containers require none; empty for none.
	Tolerated string
	// File is the configuration file.
	File string
}

// settingsTimeout is how long it may take to read the settings.
const settingsTimeout = 10 * time.Second

// Settings returns the settings of the runtime that serves the CRI at the socket. No API has
// them, but containerd prints its effective configuration, and CRI-O serves it. An error says why
// they are not known, as they are not to a process in a container, which does not see that of the
// runtime.
func (m Machine) Settings(ctx context.Context, socket string) (Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	pid, err := m.Processes.Peer(ctx, socket)
	if err != nil {
		return Settings{}, fmt.Errorf("find the process that serves %s: %w", socket, err)
	}
	if pid == 0 {
		return Settings{}, fmt.Errorf("the process that serves %s is not to be seen from here", socket)
	}
	raw, err := os.ReadFile(m.proc(pid, "cmdline"))
	if err != nil {
		return Settings{}, fmt.Errorf("arguments of the container runtime: %w", err)
	}
	args := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
	switch name := filepath.Base(args[0]); name {
	case "containerd":
		return m.ofContainerd(ctx, pid, args)
	case "crio":
		return ofCRIO(ctx, filepath.Join("/", m.Root, socket))
	default:
		return Settings{}, fmt.Errorf("%s is served by %s, and neither by containerd nor by crio", socket, name)
	}
}

// ofContainerd returns what a containerd with these arguments prints of its configuration, which
// must be that with which the process was started.
func (m Machine) ofContainerd(ctx context.Context, pid int, args []string) (Settings, error) {
	program, err := m.program(pid, args[0])
	if err != nil {
		return Settings{}, err
	}
	file := configFlag(args[1:])
	printed, err := m.Processes.Run(ctx, program, "--config="+file, "config", "dump")
	if err != nil {
		return Settings{}, fmt.Errorf("%s config dump: %w", program, err)
	}
	s, imports, err := decodeContainerd(printed)
	if err != nil {
		return Settings{}, fmt.Errorf("output of %s config dump: %w", program, err)
	}
	if err := m.checkUnchanged(pid, append(imports, file)); err != nil {
		return Settings{}, err
	}
	s.File = file
	return s, nil
}

// configFlag returns the configuration file that containerd's arguments name.
func configFlag(args []string) string {
	for i, arg := range args {
		name, value, inside := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || name != "config" && name != "c" {
			continue
		}
		if !inside && i+1 < len(args) {
			value = args[i+1]
		}
		return value
	}
	return "/etc/containerd/config.toml"
}

// ofCRIO returns what CRI-O serves of the configuration that it runs with, on the socket of the
// CRI.
func ofCRIO(ctx context.Context, socket string) (Settings, error) {
	content, err := crio.Socket(socket).Configuration(ctx)
	if err != nil {
		return Settings{}, err
	}
	s, err := decodeCRIO(content)
	if err != nil {
		return Settings{}, fmt.Errorf("CRI-O's configuration: %w", err)
	}
	s.File = "/etc/crio"
	return s, nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/observe"
)

// process is a process that nothing else is mistaken for: ids are used again, but not with the same
// start.
type process struct {
	pid   int
	start string // in clock ticks since the machine started
}

// Container is a container that runs, as the kernel has it. No program that is being tested had a
// say in this.
type Container struct {
	ID, PodUID string
	// Devices are those that it has, sorted.
	Devices []string

	init process // its first process
}

// Devices returns which devices a container has, from the directory of its first process below
// /proc.
type Devices func(directory string) ([]string, error)

// Simulated are the simulated GPUs that a container has.
func Simulated(directory string) (devices []string, err error) {
	entries, err := os.ReadDir(filepath.Join(directory, "root", observe.DeviceDirectory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		devices = append(devices, entry.Name())
	}
	return devices, nil
}

// nodeVariable is the name of NodeVariable.
const nodeVariable = "NODE"

// NodeVariable is an environment variable for containers that Visible looks at.
func NodeVariable() corev1.EnvVar {
	return corev1.EnvVar{Name: nodeVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"},
	}}
}

// Visible are the NVIDIA GPUs that NVIDIA's container runtime gives to a container, by the
// container's first process's environment. Before each is the node, by NodeVariable, as GPUs may
// have the same IDs on each node.
func Visible(directory string) (devices []string, err error) {
	content, err := os.ReadFile(filepath.Join(directory, "environ"))
	if err != nil {
		return nil, err
	}
	environment := map[string]string{}
	for pair := range strings.SplitSeq(string(content), "\x00") {
		name, value, _ := strings.Cut(pair, "=")
		environment[name] = value
	}
	for id := range strings.SplitSeq(environment["NVIDIA_VISIBLE_DEVICES"], ",") {
		if strings.HasPrefix(id, "GPU-") {
			devices = append(devices, environment[nodeVariable]+" "+id)
		}
	}
	return devices, nil
}

// inCgroup finds the pod and the container in the lines of /proc/<pid>/cgroup.
var inCgroup = regexp.MustCompile(`/pod([0-9a-f-]{36})/([0-9a-f]{64})\n`)

// Running returns the containers of a cluster, by its cgroup's name, that have begun to run their
// command.
func Running(cgroup string, devices Devices) (map[string]Container, error) {
	directories, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	found := map[string]Container{}
	for _, directory := range directories {
		c, err := firstProcess(directory, cgroup, devices)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the containers that run: %w", err)
		}
		if c != nil {
			found[c.ID] = *c
		}
	}
	return found, nil
}

// isGone says that the process that was looked at ended meanwhile.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// firstProcess returns the container whose first process has the directory, or nil if it is no such
// process.
func firstProcess(directory, cgroup string, devices Devices) (*Container, error) {
	lines, err := os.ReadFile(filepath.Join(directory, "cgroup"))
	if err != nil {
		return nil, err
	}
	match := inCgroup.FindSubmatch(lines)
	if match == nil || !strings.Contains(string(lines), cgroup) {
		return nil, nil
	}
	status, err := os.ReadFile(filepath.Join(directory, "status"))
	if err != nil {
		return nil, err
	}
	if ids := strings.Fields(field(string(status), "NSpid:")); len(ids) < 2 || ids[len(ids)-1] != "1" {
		return nil, nil
	}
	switch name := strings.TrimSpace(field(string(status), "Name:")); {
	case strings.HasPrefix(name, "runc"):
		return nil, nil // sets the container up, and briefly sees all of the node
	case name == "pause":
		// holds a pod's namespaces; one whose start was cut off is replaced before the pod has a
		// container
		return nil, nil
	}
	c := &Container{PodUID: string(match[1]), ID: string(match[2])}
	if c.init, err = processOf(directory); err != nil {
		return nil, err
	}
	if c.Devices, err = devices(directory); err != nil {
		return nil, err
	}
	slices.Sort(c.Devices)
	return c, nil
}

// processOf reads who the process of a directory of /proc is.
func processOf(directory string) (process, error) {
	pid, err := strconv.Atoi(filepath.Base(directory))
	if err != nil {
		return process{}, err
	}
	stat, err := os.ReadFile(filepath.Join(directory, "stat"))
	if err != nil {
		return process{}, err
	}
	// The second field is a name in parentheses, which may hold anything; the start is the 22nd.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("%s/stat has %d fields", directory, len(fields)+2)
	}
	return process{pid: pid, start: fields[19]}, nil
}

// runs reports whether the process is still there.
func (p process) runs() bool {
	now, err := processOf(filepath.Join("/proc", strconv.Itoa(p.pid)))
	return err == nil && now == p
}

// field returns what follows a name at the beginning of a line.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return rest
		}
	}
	return ""
}

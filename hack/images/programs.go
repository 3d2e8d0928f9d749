// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// glibcFloor is the oldest C library with which programs and plugins work, on machines where they
// run without an image, too.
const glibcFloor = "2.34"

// content is what the images for one architecture have.
type content struct {
	architecture             string
	base, scheduler, kubecri layer
}

// Where the images have the plugins. kubecri finds those of simulated GPUs only with a flag:
// they serve no hardware.
const (
	schedulerPlugins = "schedulerplugins"
	devicePlugins    = "usr/local/KubeExt/devices"
	simulatedPlugins = "usr/local/KubeExt/simulated"
)

// newContent makes layers of the base and of what "make binaries plugins" has built in a directory.
func newContent(architecture string, base files, built, licence string, created time.Time) (*content, error) {
	scheduler, kubecri := files{}, files{}
	base.addSource("usr/share/doc/kubedevice/copyright", 0o644, licence)
	scheduler.addSource("kube-scheduler", 0o755, filepath.Join(built, "kube-scheduler"))
	kubecri.addSource("kubecri", 0o755, filepath.Join(built, "kubecri"))
	for _, plugin := range []string{"nvidiagpu.so", "simgpu.so"} {
		scheduler.addSource(schedulerPlugins+"/"+plugin, 0o644, filepath.Join(built, "plugins", "scheduler", plugin))
	}
	kubecri.addSource(devicePlugins+"/nvidiagpu.so", 0o644, filepath.Join(built, "plugins", "device", "nvidiagpu.so"))
	kubecri.addSource(simulatedPlugins+"/simgpu.so", 0o644, filepath.Join(built, "plugins", "simulated", "simgpu.so"))
	for _, programs := range []files{scheduler, kubecri} {
		for _, path := range programs.sorted() {
			if err := checkProgram(programs[path].source, architecture); err != nil {
				return nil, err
			}
		}
	}
	c := &content{architecture: architecture}
	for _, part := range []struct {
		layer *layer
		files files
		title string
	}{
		{&c.base, base, "packages of Debian " + debianRelease},
		{&c.scheduler, scheduler, "kube-scheduler and its plugins"},
		{&c.kubecri, kubecri, "kubecri and its plugins"},
	} {
		var err error
		if *part.layer, err = part.files.layer(part.title, created); err != nil {
			return nil, err
		}
	}
	return c, nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkProgram makes sure that a program or plugin is of an architecture, and that the C library of
// glibcFloor is enough for it.
func checkProgram(path, architecture string) error {
	opened, err := os.Open(path)
	if err != nil {
		return err
	}
	defer opened.Close() //nolint:errcheck // opened for reading
	program, err := elf.NewFile(opened)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if program.Machine != machines[architecture] {
		return fmt.Errorf("%s is of %v: build it for %s", path, program.Machine, architecture)
	}
	symbols, err := program.ImportedSymbols()
	if err != nil {
		return fmt.Errorf("read what %s imports: %w", path, err)
	}
	for _, symbol := range symbols {
		if version, ok := strings.CutPrefix(symbol.Version, "GLIBC_"); ok && newer(version, glibcFloor) {
			return fmt.Errorf("%s needs %s of glibc %s: it must work with glibc %s; build it on an older system, or "+
				"raise the floor, which docs/deploy/images.md has, too", path, symbol.Name, version, glibcFloor)
		}
	}
	return nil
}

// newer compares versions of glibc, which are numbers with dots between them.
func newer(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range min(len(a), len(b)) {
		x, errX := strconv.Atoi(a[i])
		y, errY := strconv.Atoi(b[i])
		if errX != nil || errY != nil {
			return version > than // such as GLIBC_PRIVATE
		}
		if x != y {
			return x > y
		}
	}
	return len(a) > len(b)
}

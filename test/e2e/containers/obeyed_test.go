// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// config is what a vendor's runtime reads of config.json.
type config struct {
	Process struct {
		Args []string `json:"args"`
		Env  []string `json:"env"`
	} `json:"process"`
	Mounts []struct {
		Destination string `json:"destination"`
		Source      string `json:"source"`
	} `json:"mounts"`
	Annotations map[string]string `json:"annotations"`
}

// last returns the value of the last variable of a name, as a map filled in order has it.
func (c config) last(name string) (value string, set bool) {
	for _, entry := range c.Process.Env {
		if key, is, _ := strings.Cut(entry, "="); key == name {
			value, set = is, true
		}
	}
	return value, set
}

// first returns the first variable whose entry begins so.
func (c config) first(begin string) (entry string, set bool) {
	for _, entry := range c.Process.Env {
		if strings.HasPrefix(entry, begin) {
			return entry, true
		}
	}
	return "", false
}

// withoutHabana is what Habana's runtime obeys where there is no variable.
const withoutHabana = "no HABANA_VISIBLE_DEVICES in the mode legacy"

// obeyed returns what of the container the runtimes of vendors would give it devices for, by the
// code of those runtimes; the container was allocated none. It knows nothing of kubecri's firewall.
func (c config) obeyed() (devices []string) {
	add := func(format string, args ...any) { devices = append(devices, fmt.Sprintf(format, args...)) }
	// nvidia-container-toolkit, internal/config/image: a map of all variables; an image of the old
	// kind has CUDA_VERSION without NVIDIA_REQUIRE_CUDA, and stands for all devices.
	visible, set := c.last("NVIDIA_VISIBLE_DEVICES")
	cuda, _ := c.last("CUDA_VERSION")
	require, _ := c.last("NVIDIA_REQUIRE_CUDA")
	switch {
	case set && visible != "" && visible != "void" && visible != "none":
		add("NVIDIA_VISIBLE_DEVICES=%s", visible)
	case !set && cuda != "" && require == "":
		add("CUDA_VERSION without NVIDIA_VISIBLE_DEVICES")
	}
	for _, mount := range c.Mounts {
		if listsDevices(mount.Destination) && path.Clean(mount.Source) == "/dev/null" {
			add("the mount %s", mount.Destination)
		}
	}
	// ROCm/container-toolkit, internal/oci: the last of all names.
	amd := ""
	for _, entry := range c.Process.Env {
		name, value, _ := strings.Cut(entry, "=")
		if name == "AMD_VISIBLE_DEVICES" || strings.HasPrefix(name, "DOCKER_RESOURCE_") {
			amd = value
		}
	}
	if strings.Contains(amd, "all") || strings.ContainsAny(amd, "0123456789") {
		add("AMD_VISIBLE_DEVICES=%s", amd)
	}
	// habana-container-runtime: the mode oci takes the first entry that begins so, the hook of the
	// mode legacy the last of the name, without which it gives all.
	if entry, set := c.first("HABANA_VISIBLE_DEVICES"); set && !strings.HasSuffix(entry, "=none") {
		add("%s in the mode oci", entry)
	}
	if habana, set := c.last("HABANA_VISIBLE_DEVICES"); !set {
		add("%s", withoutHabana)
	} else if habana != "none" {
		add("HABANA_VISIBLE_DEVICES=%s in the mode legacy", habana)
	}
	// ascend-docker-runtime: the last of the name; in 2023 the first with Ascend in its value.
	if ascend, _ := c.last("ASCEND_VISIBLE_DEVICES"); ascend != "" {
		add("ASCEND_VISIBLE_DEVICES=%s", ascend)
	}
	for _, entry := range c.Process.Env {
		name, value, _ := strings.Cut(entry, "=")
		if name == "ASCEND_VISIBLE_DEVICES" && strings.Contains(value, "Ascend") {
			add("%s in releases of 2023", entry)
		}
	}
	// Xilinx_Container_Runtime, src/cmd/xlnxcr.go, getVisibleDevices: the last of each name; it
	// takes cards where there are no devices.
	for _, name := range []string{"XILINX_VISIBLE_DEVICES", "XILINX_VISIBLE_CARDS"} {
		if value, _ := c.last(name); value != "" {
			add("%s=%s", name, value)
		}
	}
	devices = append(devices, c.obeyedAsDeclared()...)
	for _, entry := range c.Process.Env {
		if needsNoDevice(entry) {
			add("%s", entry)
		}
	}
	for key, value := range c.Annotations {
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			add("the annotation %s: %s", key, value)
		}
	}
	return devices
}

// obeyedAsDeclared returns what runtimes obey of vendors that are not built in: of one that the
// nodes' configuration declares, and of one whose plugin says it. The first may take any variable;
// the second takes the last of one name, and the first that begins as its cards do.
func (c config) obeyedAsDeclared() (devices []string) {
	for _, entry := range c.Process.Env {
		if value, is := strings.CutPrefix(entry, "MTHREADS_VISIBLE_DEVICES="); is && value != "void" {
			devices = append(devices, entry)
		}
	}
	if value, set := c.last("WIDGET_VISIBLE_DEVICES"); set && value != "none" {
		devices = append(devices, "WIDGET_VISIBLE_DEVICES="+value)
	}
	if entry, set := c.first("WIDGET_CARDS_"); set && !strings.HasSuffix(entry, "=none") {
		devices = append(devices, entry)
	}
	return devices
}

// moreThanAllocated returns what of a container that was allocated a device would give it more, by
// the code of nvidia-container-toolkit (internal/modifier/cdi.go, cmd/nvidia-cdi-hook) and of
// ascend-docker-runtime.
func (c config) moreThanAllocated() (devices []string) {
	add := func(name, value string) { devices = append(devices, fmt.Sprintf("more by %s=%s", name, value)) }
	for _, gate := range []string{"NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH"} {
		if value, _ := c.last(gate); value == "enabled" {
			add(gate, value)
		}
	}
	if channels, _ := c.last("NVIDIA_IMEX_CHANNELS"); channels != "" && channels != "void" {
		add("NVIDIA_IMEX_CHANNELS", channels)
	}
	for _, name := range []string{"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"} {
		if value, _ := c.last(name); value != "" {
			add(name, value)
		}
	}
	seen := map[string]bool{}
	for _, entry := range c.Process.Env {
		name, value, _ := strings.Cut(entry, "=")
		_, isSwitch := switches[name]
		if limits(name, value) && !(isSwitch && seen[name]) { // the first of a switch counts
			add(name, value)
		}
		seen[name] = true
	}
	return devices
}

// listOfDevices begins the paths of mounts by which NVIDIA's runtime finds devices.
const listOfDevices = "/var/run/nvidia-container-devices"

// listsDevices reports whether a path is one of these.
func listsDevices(destination string) bool {
	return strings.HasPrefix(path.Clean(destination), listOfDevices)
}

// limits reports whether a variable changes what a container gets of a device that it was
// allocated. ascend-docker-runtime does not see the blanks of its name.
func limits(name, value string) bool {
	return slices.Contains(limiting, name) || strings.ReplaceAll(name, " ", "") == "ASCEND_VNPU_SPECS" ||
		name == "ASCEND_RUNTIME_OPTIONS" && strings.Contains(value, "VIRTUAL") ||
		name == "ASCEND_ALLOW_LINK" && value == "True"
}

// needsNoDevice reports whether a variable takes effect in any container. ascend-docker-runtime
// mounts the sockets of the container runtimes, and paths of the host; its hook joins the elements
// of ASCEND_RUNTIME_MOUNTS to a directory, which one with a slash may leave.
func needsNoDevice(entry string) bool {
	switch name, value, _ := strings.Cut(entry, "="); name {
	case "MOUNT_BY_RUNTIME_FOR_DP", "host_snapshot_path", "GRUS_SNAPSHOT_IMAGE_PATH":
		return true
	case "ASCEND_RUNTIME_MOUNTS":
		return strings.Contains(value, "/")
	default:
		return false
	}
}

func TestHarmfulVariablesAreFound(t *testing.T) {
	harmless := []string{"HABANA_VISIBLE_DEVICES=none", "ASCEND_VISIBLE_DEVICES="}
	for name, test := range map[string]struct {
		env  []string
		want int
	}{
		"nothing":                  {nil, 0},
		"void":                     {[]string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"}, 0},
		"the last is all":          {[]string{"NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=all"}, 1},
		"an old image":             {[]string{"CUDA_VERSION=9.0"}, 1},
		"a blank that is no blank": {[]string{" NVIDIA_VISIBLE_DEVICES=all"}, 0},
		"a resource of AMD":        {[]string{"AMD_VISIBLE_DEVICES=none", "DOCKER_RESOURCE_X=0"}, 1},
		"the last is none":         {[]string{"DOCKER_RESOURCE_X=0", "AMD_VISIBLE_DEVICES=none"}, 0},
		"Ascend in the first":      {[]string{"ASCEND_VISIBLE_DEVICES=Ascend910-0"}, 1},
		"Xilinx's, the last":       {[]string{"XILINX_VISIBLE_DEVICES=", "XILINX_VISIBLE_DEVICES=none"}, 1},
		"cards of Xilinx's":        {[]string{"XILINX_VISIBLE_CARDS=all", "XILINX_VISIBLE_DEVICES="}, 1},
		"nothing of Xilinx's":      {[]string{"XILINX_VISIBLE_CARDS=0", "XILINX_VISIBLE_CARDS="}, 0},
		"any that is declared": {
			[]string{"MTHREADS_VISIBLE_DEVICES=0", "MTHREADS_VISIBLE_DEVICES=void"}, 1,
		},
		"a plugin's, the last":  {[]string{"WIDGET_VISIBLE_DEVICES=none", "WIDGET_VISIBLE_DEVICES=all"}, 1},
		"a plugin's, the first": {[]string{"WIDGET_CARDS_X=0", "WIDGET_CARDS_Y=none"}, 1},
		"nothing of a plugin's": {
			[]string{"WIDGET_CARDS_Y=none", "WIDGET_CARDS_X=0", "WIDGET_VISIBLE_DEVICES=none"}, 0,
		},
		"sockets":          {[]string{"MOUNT_BY_RUNTIME_FOR_DP="}, 1},
		"a snapshot":       {[]string{"host_snapshot_path=/", "GRUS_SNAPSHOT_IMAGE_PATH=/"}, 2},
		"a name of mounts": {[]string{"ASCEND_RUNTIME_MOUNTS=base"}, 0},
		"a path of mounts": {[]string{"ASCEND_RUNTIME_MOUNTS=a/../../etc"}, 1},
	} {
		var c config
		c.Process.Env = append(test.env, harmless...)
		if got := c.obeyed(); len(got) != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	var c config
	c.Process.Env = []string{"HABANA_VISIBLE_DEVICES_X=0", "HABANA_VISIBLE_DEVICES=none"}
	if got := c.obeyed(); len(got) != 1 {
		t.Errorf("the first of Habana's: %q", got)
	}
}

func TestVariablesForMoreDevicesThanAllocatedAreFound(t *testing.T) {
	var c config
	c.Process.Env = []string{
		"NVIDIA_GDS=enabled", "NVIDIA_MOFED=enabled", "NVIDIA_MOFED=disabled", "NVIDIA_GDRCOPY=all",
		"NVIDIA_IMEX_CHANNELS=0", "NVIDIA_MIG_CONFIG_DEVICES=", "NVIDIA_MIG_MONITOR_DEVICES=all",
		"NVIDIA_GPU_MEMORY_LIMIT=", " ASCEND_VNPU_SPECS =vir01", "ASCEND_RUNTIME_OPTIONS=NODRV,VIRTUAL",
		"ASCEND_ALLOW_LINK=", "ASCEND_ALLOW_LINK=True",
	}
	want := []string{
		"more by NVIDIA_GDS=enabled", "more by NVIDIA_IMEX_CHANNELS=0", "more by NVIDIA_MIG_MONITOR_DEVICES=all",
		"more by NVIDIA_GPU_MEMORY_LIMIT=", "more by  ASCEND_VNPU_SPECS =vir01",
		"more by ASCEND_RUNTIME_OPTIONS=NODRV,VIRTUAL",
	}
	if got := c.moreThanAllocated(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

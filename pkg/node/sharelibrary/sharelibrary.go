// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharelibrary gives containers with shares of NVIDIA's GPUs a library of the
// administrator's that limits what their programs use. It is for libraries that read the variables
// of HAMi-core (github.com/Project-HAMi/HAMi-core). The dynamic linker loads them, by the file
// /etc/ld.so.preload. Programs that are linked statically, or with musl, do not load them.
package sharelibrary

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// name names the library in errors, in the place of a device plugin.
const name = "share library"

// Where containers have the library, the file that has it loaded, and the directory of its locks,
// as with HAMi.
const (
	libraryPath = "/usr/local/vgpu/libvgpu.so"
	preloadPath = "/etc/ld.so.preload"
	locksPath   = "/tmp/vgpulock"
)

// preloadFile is the name of the node's file that is mounted at preloadPath.
const preloadFile = "ld.so.preload"

const mebibyte = 1 << 20

// The resources of a GPU that the library limits.
const (
	memory = "memory" // bytes
	cores  = "cores"  // percent of the compute time
)

// busID is the attribute that says where a GPU is on the PCI bus.
const busID = "resource.kubernetes.io/pciBusID"

// fixed are variables by which the limits could be switched off, and where the library counts what
// the processes of a container use together.
var fixed = map[string]string{
	"CUDA_DISABLE_CONTROL":            "false",
	"CUDA_OVERSUBSCRIBE":              "false",
	"GPU_CORE_UTILIZATION_POLICY":     "default",
	"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/cudevshr.cache",
}

// Devices are the devices of the node. *plugins.Manager is one.
type Devices interface {
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
}

// Settings are what the administrator says of the library.
type Settings struct {
	// Path is the file of the library, and Locks a directory that each container with a share may
	// write to; the latter may be empty.
	Path, Locks string
	// AllowWritable accepts a library that users other than root may change.
	AllowWritable bool
}

// Check returns why the library cannot be given to containers, or nil.
func (s Settings) Check() error {
	if !filepath.IsAbs(s.Path) {
		return fmt.Errorf("%q is no absolute path", s.Path)
	}
	file, err := s.file()
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return cmp.Or(err, fmt.Errorf("%s is no regular file", file))
	}
	if !s.AllowWritable {
		if err := pluginload.CheckTrusted(s.Path); err != nil {
			return fmt.Errorf("%s: %w", s.Path, err)
		}
	}
	if s.Locks == "" {
		return nil
	}
	if info, err = os.Stat(s.Locks); err != nil || !info.IsDir() || !filepath.IsAbs(s.Locks) {
		return cmp.Or(err, fmt.Errorf("%q is no absolute path of a directory", s.Locks))
	}
	return nil
}

// file returns the library without symbolic links, as mounts need it.
func (s Settings) file() (string, error) {
	file, err := filepath.EvalSymlinks(s.Path)
	if err != nil {
		return "", fmt.Errorf("%w: put the library there, or take it out of kubecri's configuration", err)
	}
	return file, nil
}

// Library is the library. Its methods are safe for concurrent use.
type Library struct {
	settings Settings
	dir      string
	devices  Devices
}

// New returns the library with settings that were checked. Files for containers are written to dir.
func New(settings Settings, dir string, devices Devices) *Library {
	return &Library{settings, dir, devices}
}

// Limited returns the devices whose shares the library limits, as in [deviceinfo.TaintedDevice], in
// any order, and a channel that is closed when that may have changed.
func (l *Library) Limited() (list []string, changed <-chan struct{}) {
	inventory, changed := l.devices.Inventory()
	for resourceName := range inventory.Node.Capacity {
		if isGPUMemory(inventory, resourceName) {
			list = append(list, deviceinfo.TaintedDevice(path.Dir(string(resourceName))))
		}
	}
	return list, changed
}

// isGPUMemory reports whether the node has the resource, and it is the memory of one of NVIDIA's
// GPUs.
func isGPUMemory(inventory *plugins.Inventory, name types.ResourceName) bool {
	if path.Base(string(name)) != memory || !resource.IsGroupResourceName(name) {
		return false
	}
	of := types.ResourceLocation{name: name}
	return slices.ContainsFunc(inventory.ExtendedResources(), func(extended types.ResourceName) bool {
		return strings.HasPrefix(string(extended), "nvidia.com/") && inventory.Serves(extended, of)
	})
}

// held is what a container holds of a GPU.
type held struct {
	memory, cores int64 // 0 for all of the memory, and for cores that are not limited
	bus           string
}

// Limit returns what a container that is to be created gets of the library. limited is false, and
// the addition empty, for one without a share of a GPU. An error says why a container with shares
// must not be created.
func (l *Library) Limit(claim plugins.Claim) (addition inject.Addition, limited bool, err error) {
	gpus := l.holdings(claim.Container)
	if !slices.ContainsFunc(gpus, func(h held) bool { return h.memory > 0 }) {
		return inject.Addition{}, false, nil
	}
	envs := maps.Clone(fixed)
	if err := limit(envs, gpus); err != nil {
		return inject.Addition{}, false, err
	}
	mounts, err := l.mounts()
	if err != nil {
		return inject.Addition{}, false, fmt.Errorf("%s: %w", name, err)
	}
	return inject.Addition{
		Plugin: name, Allocation: device.Allocation{Envs: envs, Mounts: mounts},
	}, true, nil
}

// holdings returns what the container holds of each of NVIDIA's GPUs.
func (l *Library) holdings(container *types.ContainerInfo) []held {
	inventory, _ := l.devices.Inventory()
	quantities := types.ResourceList{}
	for request, from := range container.AllocateFrom {
		quantities[from] += container.DevRequests[request]
	}
	gpus := map[string]held{} // by what the names of its resources have in common
	for from, quantity := range quantities {
		gpu := path.Dir(string(from))
		if !isGPUMemory(inventory, types.ResourceName(gpu+"/"+memory)) {
			continue
		}
		h := gpus[gpu]
		switch path.Base(string(from)) {
		case memory:
			if quantity < inventory.Node.Capacity[from] {
				h.memory = quantity
			}
		case cores:
			h.cores = quantity
		}
		h.bus = inventory.Attributes[gpu][busID].String()
		gpus[gpu] = h
	}
	return slices.Collect(maps.Values(gpus))
}

// errOrder is why the limits of a container are not known.
var errOrder = errors.New("the container's shares of its GPUs differ, and the order of the GPUs, by PCI bus IDs, is " +
	"not known: request the same of each GPU")

// limit sets the variables of the limits. The library counts GPUs as CUDA does, and where it makes
// a difference, a variable makes CUDA count by bus IDs.
func limit(envs map[string]string, gpus []held) error {
	if slices.ContainsFunc(gpus, func(h held) bool { return h.memory != gpus[0].memory }) {
		if slices.ContainsFunc(gpus, func(h held) bool { return h.bus == "" }) {
			return errOrder
		}
		slices.SortFunc(gpus, func(a, b held) int { return cmp.Compare(a.bus, b.bus) })
		envs["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
	}
	percent := int64(0) // one for all GPUs: the least
	for i, h := range gpus {
		if h.memory > 0 {
			envs["CUDA_DEVICE_MEMORY_LIMIT_"+strconv.Itoa(i)] = fmt.Sprintf("%dm", max(1, h.memory/mebibyte))
		}
		if h.cores > 0 && (percent == 0 || h.cores < percent) {
			percent = h.cores
		}
	}
	envs["CUDA_DEVICE_SM_LIMIT"] = strconv.FormatInt(percent, 10)
	return nil
}

// mounts returns the files that the container gets.
func (l *Library) mounts() ([]device.HostMount, error) {
	file, err := l.settings.file()
	if err != nil {
		return nil, err
	}
	preload := filepath.Join(l.dir, preloadFile)
	if err := writePreload(preload); err != nil {
		return nil, err
	}
	mounts := []device.HostMount{
		{HostPath: file, ContainerPath: libraryPath, Readonly: true},
		{HostPath: preload, ContainerPath: preloadPath, Readonly: true},
	}
	if l.settings.Locks != "" {
		locks, err := filepath.EvalSymlinks(l.settings.Locks)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, device.HostMount{HostPath: locks, ContainerPath: locksPath})
	}
	return mounts, nil
}

// writePreload writes the file that names the library, unless it is there.
func writePreload(file string) error {
	content := []byte(libraryPath + "\n")
	there, err := os.ReadFile(file)
	if err == nil && bytes.Equal(there, content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), preloadFile+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// idle are command and arguments of a container that runs until it is ended.
var idle = []string{"/bin/sh", "-c", "trap exit TERM; sleep 86400 & wait"}

// names are those of variables; values are what they have.
var (
	names = []string{
		"NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES", "DOCKER_RESOURCE_GPU",
		"DOCKER_RESOURCE_X", "HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES_X", "ASCEND_VISIBLE_DEVICES",
		"CUDA_VERSION", "NVIDIA_DRIVER_CAPABILITIES", "nvidia_visible_devices", "MODE", "PATH",
		"XILINX_VISIBLE_DEVICES", "XILINX_VISIBLE_CARDS", "MTHREADS_VISIBLE_DEVICES", "WIDGET_VISIBLE_DEVICES",
		"WIDGET_CARDS_X",
	}
	values = []string{"all", "0", "0,1", "", "none", "void", "GPU-0", "Ascend910-0", "nvidia.com/gpu=all"}
)

// harmful are names of variables that take effect without a device, for which kubecri refuses a
// container. They are rare, as most containers must start.
var harmful = []string{
	"MOUNT_BY_RUNTIME_FOR_DP", "host_snapshot_path", "GRUS_SNAPSHOT_IMAGE_PATH", "ASCEND_RUNTIME_MOUNTS",
}

// adding are names of variables by which a container that has devices would get more, and limiting
// those for which kubecri refuses such a container. They do nothing in others.
var (
	adding = []string{
		"NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_GDS",
		"NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH",
	}
	addingValues = []string{"enabled", "enabled", "all", "0", "disabled", "void", ""}
	limiting     = []string{"NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT", "ASCEND_VNPU_SPECS"}
)

// switches are variables by which a container that has devices would get others or more with these
// values, for which kubecri refuses it. With others they do nothing.
var switches = map[string]string{"ASCEND_RUNTIME_OPTIONS": "NODRV,VIRTUAL", "ASCEND_ALLOW_LINK": "True"}

// notUTF8 is what values of Secrets may have in them. The runtime stores three bytes for it.
const notUTF8 = "\xff"

// devicePaths are paths in containers that name devices, to people or to vendors' runtimes, and
// deviceLists those by which NVIDIA's runtime finds them. They are of mounts and of images'
// volumes.
var (
	devicePaths = []string{
		"/dev/nvidia0", "/dev/kfd", "/dev/dri/card0", "/dev/char/195:0", "/run/nvidia-container-devices/all",
	}
	deviceLists = []string{
		"/all", "/0", "/0,1", "/cdi/nvidia.com/gpu/all", "/cdi/amd.com/gpu=0", "/imex/0", "//./0", "s/0",
	}
)

// generator makes random images and pods.
type generator struct {
	*rand.Rand
	seed uint64
}

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 0)), seed} }

func pick[T any](g generator, list []T) T { return list[g.IntN(len(list))] }

// chance is true in one of n cases.
func (g generator) chance(n int) bool { return g.IntN(n) == 0 }

// variable returns a name in some spelling, and a value.
func (g generator) variable() (name, value string) {
	if g.chance(150) {
		return pick(g, harmful), pick(g, values)
	}
	if g.chance(100) {
		return pick(g, limiting), pick(g, values)
	}
	if g.chance(60) {
		name = pick(g, slices.Sorted(maps.Keys(switches)))
		return name, pick(g, []string{switches[name], switches[name], "NODRV", ""})
	}
	name, value = pick(g, names), pick(g, values)
	if g.chance(4) {
		name, value = pick(g, adding), pick(g, addingValues)
	}
	if name == "PATH" {
		return name, "/usr/bin:/bin"
	}
	if g.chance(8) {
		name = strings.Repeat(" ", g.IntN(3)) + name + strings.Repeat(" ", g.IntN(3))
	}
	return name, value
}

// imageEnv returns the variables of an image, in which a name may occur twice.
func (g generator) imageEnv() []string {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for range g.IntN(6) {
		name, value := g.variable()
		env = append(env, name+"="+value)
		if g.chance(3) {
			env = append(env, name+"="+pick(g, values))
		}
	}
	return env
}

// randomImage is an image with a random configuration.
type randomImage struct {
	name   string
	config v1.ImageConfig
}

// image returns the configuration of an image, which idles by itself. Some have large arguments or
// labels; the runtime copies labels into the containers.
func (g generator) image(name string) randomImage {
	config := v1.ImageConfig{Env: g.imageEnv(), Entrypoint: idle, Labels: map[string]string{"random": name}}
	if g.chance(4) {
		config.Cmd = g.texts(g.size())
	}
	if g.chance(4) {
		for i, text := range g.texts(g.size()) {
			config.Labels[fmt.Sprint("label-", i)] = text
		}
	}
	if g.chance(6) {
		path := pick(g, devicePaths)
		if g.chance(3) {
			path = listOfDevices + pick(g, deviceLists)
		}
		config.Volumes = map[string]struct{}{path: {}}
	}
	return randomImage{name, config}
}

// texts returns texts of that many bytes together, or up to a few ten thousand that are short.
func (g generator) texts(size int) (texts []string) {
	if g.chance(4) {
		return slices.Repeat([]string{strings.Repeat("t", g.IntN(3))}, size/20)
	}
	for left := size; left > 0; left -= 1000 {
		texts = append(texts, strings.Repeat("t", min(left, 1000)))
	}
	return texts
}

// pod is a random pod.
type pod struct {
	annotations, labels map[string]string
	containers          []container
	// requests are what its container main requests of devices, as kube.SetRequests has them. Empty
	// means that no scheduler sees the pod.
	requests string
}

// container is one as the kubelet requests it, and its image.
type container struct {
	*runtimeapi.ContainerConfig
	image randomImage
}

// pod returns a pod whose containers have the images. About one of ten is very large.
func (g generator) pod(images []randomImage) pod {
	p := pod{annotations: map[string]string{}, labels: map[string]string{}}
	if g.chance(8) {
		device := pick(g, []string{"nvidia.com/gpu=all", "example.com/x=0"})
		p.annotations["cdi.k8s.io/"+pick(g, []string{"a", "gpu"})] = device
	}
	if g.chance(12) {
		p.annotations["note"] = strings.Repeat("n", g.size())
	}
	if g.chance(20) {
		for i := range g.IntN(3000) {
			p.labels[fmt.Sprint("label-", i)] = strings.Repeat("l", 60)
		}
	}
	for i := range 1 + g.IntN(6) {
		p.containers = append(p.containers, g.container(fmt.Sprint("c", i), pick(g, images)))
	}
	return p
}

// withDevice has the pod's first container request a part of a GPU, and more by its variables.
func (g generator) withDevice(p pod) pod {
	p.requests = `"gpu/a/memory":"1Gi"`
	c := p.containers[0]
	c.Metadata.Name, c.Labels["io.kubernetes.container.name"] = "main", "main"
	for range 1 + g.IntN(3) {
		name := pick(g, adding)
		c.Envs = slices.DeleteFunc(c.Envs, func(env *runtimeapi.KeyValue) bool { return env.GetKey() == name })
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(pick(g, addingValues))})
	}
	return p
}

// requestsDevice reports whether a container of the pod is the one that requests a device.
func (p pod) requestsDevice(c container) bool {
	return p.requests != "" && c.GetMetadata().GetName() == "main"
}

// size returns a number of bytes: small, or around and above what is allowed.
func (g generator) size() int {
	if g.chance(2) {
		return g.IntN(20_000)
	}
	return g.IntN(500_000)
}

// container returns a container of a pod. The kubelet has removed duplicates of the pod's own
// variables by then, and has put ConfigMaps, Secrets and Services into them. Half of them run what
// their image says.
func (g generator) container(name string, image randomImage) container {
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: image.name},
		Labels:   map[string]string{"io.kubernetes.container.name": name},
		LogPath:  name + ".log", Linux: &runtimeapi.LinuxContainerConfig{},
	}
	if g.chance(2) {
		c.Command = idle
	}
	set := map[string]bool{}
	put := func(name, value string) {
		if !set[name] {
			set[name] = true
			c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
		}
	}
	for range g.IntN(8) {
		name, value := g.variable()
		if g.chance(20) && name != "PATH" { // a Secret
			value += strings.Repeat(notUTF8, 1+g.IntN(3))
		}
		put(name, value)
	}
	if g.chance(6) { // a ConfigMap with prefix
		prefix := pick(g, []string{
			"", " ", "DOCKER_RESOURCE_", "HABANA_VISIBLE_DEVICES_", "WIDGET_CARDS_", "APP_", "APP_",
		})
		for i := range 1 + g.IntN(900) {
			put(fmt.Sprint(prefix, "KEY", i), pick(g, values))
		}
	}
	if g.chance(5) {
		for i, text := range g.texts(g.size()) {
			put(fmt.Sprint("LARGE_", i), text)
		}
	}
	if g.chance(20) {
		for i, text := range g.texts(g.size() / 4) {
			put(fmt.Sprint("BYTES_", i), strings.Repeat(notUTF8, len(text)))
		}
	}
	if g.chance(10) {
		c.Args = g.texts(g.size())
	}
	if g.chance(10) {
		c.Annotations = map[string]string{"note": strings.Repeat("n", g.size())}
	}
	if g.chance(10) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{
			HostPath: "/dev/null", ContainerPath: listOfDevices + pick(g, deviceLists),
		})
	}
	if g.chance(6) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{
			HostPath: pick(g, append(deviceFiles, "/dev/null")), ContainerPath: pick(g, devicePaths),
		})
	}
	if g.chance(10) {
		for i := range g.IntN(200) {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{
				HostPath: "/etc/hostname", ContainerPath: fmt.Sprint("/tmp/m", i),
			})
		}
	}
	return container{c, image}
}

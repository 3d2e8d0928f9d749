// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toolkit tests the device firewall against NVIDIA's container toolkit itself: which
// devices would its programs add to a container, without the firewall and with it?
//
// The programs are built from their sources. They get a container as a runtime hands it to them,
// its OCI specification, made of the image's variables and of what the kubelet and kubecri ask
// for, in each way in which runtimes merge them: nothing that stands twice is left out for them.
// Two of the toolkit's modes work on a machine without NVIDIA's driver: cdi, where the
// runtime takes the devices from files, and legacy, where its hook hands the list of devices to a
// program in C, for which a script stands in that writes the list down. What a container requests
// is found out by the same code in all modes.
package toolkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/checkout"
)

// gpus are how many GPUs the node has.
const gpus = 4

// programs is where the toolkit's programs are.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "toolkit")
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	programs = dir
	return m.Run()
}

// build builds the toolkit's programs.
func build(dir string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	command := exec.Command("go", "build", "-o", dir+"/",
		"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-container-runtime",
		"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-container-runtime-hook")
	command.Dir = filepath.Join(root, "test", "third_party", "nvidia-container-toolkit")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build NVIDIA's container toolkit: %w\n%s", err, out)
	}
	return nil
}

// container is a container and how it requests devices.
type container struct {
	image       []string          // variables of its image
	env         map[string]string // variables of its pod
	annotations map[string]string // of its pod
	mounts      []string          // paths at which /dev/null is mounted
	sysAdmin    bool              // it has CAP_SYS_ADMIN
	passed      map[string]string // variables from the device plugin, if it was allocated a GPU
}

// all are the paths of all GPUs.
func all() []string {
	var paths []string
	for i := range gpus {
		paths = append(paths, fmt.Sprintf("/dev/nvidia%d", i))
	}
	return paths
}

func TestAContainerGetsOnlyItsAllocatedDevices(t *testing.T) {
	first := map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
	for name, test := range map[string]struct {
		container
		off     []string // what the runtime adds without the firewall
		hookOff string   // which devices the hook requests without the firewall
		// offByNRI are those where NRI has not replaced the last of two variables: all of them.
		offByNRI string
		on       []string
		hookOn   string
		refused  bool // by the firewall
	}{
		"an image that requests all": {
			container: container{image: []string{"NVIDIA_VISIBLE_DEVICES=all"}}, off: all(), hookOff: "all",
		},
		"an image of the old kind, which requests all by no variable": {
			container: container{image: []string{"CUDA_VERSION=9.0"}}, off: all(), hookOff: "all",
		},
		"a pod that requests all": {
			container: container{env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}}, off: all(), hookOff: "all",
		},
		"a pod that requests one by its UUID": {
			container: container{env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-2"}},
			off:       []string{"/dev/nvidia2"}, hookOff: "GPU-2",
		},
		"an image that requests none, and a pod that requests all": {
			container: container{
				image: []string{"NVIDIA_VISIBLE_DEVICES=void"}, env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"},
			},
			off: all(), hookOff: "all",
		},
		"a pod with the right to administer the system": {
			container: container{env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}, sysAdmin: true},
			off:       all(), hookOff: "all",
		},
		"an annotation": {
			container: container{annotations: map[string]string{"cdi.k8s.io/mine": "nvidia.com/gpu=all"}},
			off:       all(), refused: true,
		},
		"an annotation with a name of no kind": {
			container: container{annotations: map[string]string{"cdi.k8s.io/mine": "3"}},
			off:       []string{"/dev/nvidia3"}, refused: true,
		},
		"a mount": {
			container: container{mounts: []string{"/var/run/nvidia-container-devices/all"}},
			off:       all(), hookOff: "all", refused: true,
		},
		"a mount at a path that only begins like the list": {
			container: container{mounts: []string{"/var/run/nvidia-container-devices2"}},
			off:       []string{"/dev/nvidia2"}, hookOff: "2", refused: true,
		},
		"a mount for CDI": {
			container: container{mounts: []string{"/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/2"}},
			off:       []string{"/dev/nvidia2"}, hookOff: "nvidia.com/gpu=2", refused: true,
		},
		"a container that was allocated one": {
			container: container{passed: first}, off: []string{"/dev/nvidia1"}, hookOff: "GPU-1",
			on: []string{"/dev/nvidia1"}, hookOn: "GPU-1",
		},
		"one that was allocated one and requests all": {
			container: container{
				image: []string{"NVIDIA_VISIBLE_DEVICES=all"}, env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"},
				passed: first,
			},
			off: []string{"/dev/nvidia1"}, hookOff: "GPU-1", offByNRI: "all",
			on: []string{"/dev/nvidia1"}, hookOn: "GPU-1",
		},
		"one that was allocated one by CDI, so that no variable is set, and requests all": {
			container: container{env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}, passed: map[string]string{}},
			off:       all(), hookOff: "all",
		},
		"one that was allocated one and requests all by an annotation, which the runtime prefers": {
			container: container{
				annotations: map[string]string{"cdi.k8s.io/mine": "nvidia.com/gpu=all"}, passed: first,
			},
			off: all(), hookOff: "GPU-1", refused: true,
		},
		"an image that requests all twice": {
			container: container{image: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=all"}},
			off:       all(), hookOff: "all",
		},
		"an image that requests none and then all": {
			container: container{image: []string{"NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=all"}},
			off:       all(), hookOff: "all",
		},
		"an image and a pod that both request, for a container that was allocated one": {
			container: container{
				image: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=3"},
				env:   map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}, passed: first,
			},
			off: []string{"/dev/nvidia1"}, hookOff: "GPU-1", offByNRI: "all",
			on: []string{"/dev/nvidia1"}, hookOn: "GPU-1",
		},
		"a name with a blank, which the toolkit does not know": {
			container: container{env: map[string]string{"NVIDIA_VISIBLE_DEVICES ": "all"}},
		},
		"a container that was allocated one and limits its memory, which may fail it": {
			container: container{env: map[string]string{"NVIDIA_GPU_MEMORY_LIMIT": "1"}, passed: first},
			off:       []string{"/dev/nvidia1"}, hookOff: "GPU-1", refused: true,
		},
		"a container that requests nothing": {},
	} {
		for _, by := range frontends {
			t.Run(name+", "+by.name, func(t *testing.T) {
				before := unprotected(test.container, by)
				if by.adjusts && test.offByNRI != "" {
					test.off, test.hookOff = all(), test.offByNRI
				}
				if got := addedByRuntime(t, test.container, before); !slices.Equal(got, test.off) {
					t.Errorf("without the firewall the runtime adds %v, want %v", got, test.off)
				}
				if got := requestedByHook(t, test.container, before)["--device"]; got != test.hookOff {
					t.Errorf("without the firewall the hook requests %q, want %q", got, test.hookOff)
				}
				after, refused := protect(t, test.container, by)
				if refused != test.refused {
					t.Fatalf("refused: %t, want %t", refused, test.refused)
				}
				if refused {
					return
				}
				if got := addedByRuntime(t, test.container, after); !slices.Equal(got, test.on) {
					t.Errorf("with the firewall the runtime adds %v, want %v (%q)", got, test.on, after)
				}
				if got := requestedByHook(t, test.container, after)["--device"]; got != test.hookOn {
					t.Errorf("with the firewall the hook requests %q, want %q (%q)", got, test.hookOn, after)
				}
			})
		}
	}
}

func TestAContainerWithAGPUGetsNoOtherDevice(t *testing.T) {
	greedy := container{
		env: map[string]string{
			"NVIDIA_IMEX_CHANNELS": "0,1", "NVIDIA_MIG_CONFIG_DEVICES": "all", "NVIDIA_MIG_MONITOR_DEVICES": "all",
		},
		sysAdmin: true, passed: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
	}
	without := map[string]string{
		"--device": "GPU-1", "--imex-channel": "0,1", "--mig-config": "all", "--mig-monitor": "all",
	}
	for _, by := range frontends {
		if diff := cmp.Diff(without, requestedByHook(t, greedy, unprotected(greedy, by))); diff != "" {
			t.Errorf("%s: without the firewall (-want +got):\n%s", by.name, diff)
		}
		env, _ := protect(t, greedy, by)
		if diff := cmp.Diff(map[string]string{"--device": "GPU-1"}, requestedByHook(t, greedy, env)); diff != "" {
			t.Errorf("%s: with the firewall (-want +got):\n%s", by.name, diff)
		}
	}
}

// noPlugins are device plugins that say nothing to the firewall.
type noPlugins struct{}

func (noPlugins) Loaded() <-chan struct{} {
	loaded := make(chan struct{})
	close(loaded)
	return loaded
}

func (noPlugins) Firewalls(types.ResourceLocation) (map[string]device.Firewall, bool) {
	return nil, true
}

// nodeFiles is a machine without device files.
type nodeFiles struct{}

func (nodeFiles) Number(path string) (firewall.DeviceNumber, error) {
	return firewall.DeviceNumber{}, fmt.Errorf("there is no %s", path)
}

func (nodeFiles) Glob(string) []string { return nil }

func (nodeFiles) Made(string) (time.Time, bool) { return time.Time{}, false }

// servesNothing is a kubelet that allocates nothing itself.
type servesNothing struct{}

// KubeletServes implements firewall.Kubelet.
func (servesNothing) KubeletServes(context.Context, func(types.ResourceName) bool) bool { return false }

// protect returns the environment that the OCI runtime gets of a container which the firewall has
// changed, or whether it refuses the container.
func protect(t *testing.T, c container, by frontend) (env []string, refused bool) {
	t.Helper()
	wall := firewall.New(firewall.Options{
		Plugins: noPlugins{}, Kubelet: servesNothing{}, Files: nodeFiles{},
	})
	guard, err := wall.Guard(t.Context(), map[types.ResourceName]bool{"nvidia.com/gpu": true})
	if err != nil {
		t.Fatal(err)
	}
	image := variables(c.image)
	asked := firewall.Container{
		PodAnnotations: c.annotations, Adjusted: by.adjusts,
		Config: &runtimeapi.ContainerConfig{Envs: list(c.env)},
	}
	if by.adjusts {
		asked.Config.Envs = slices.Concat(image, list(c.env))
	} else if guard.NeedsImage(asked, c.passed != nil) {
		asked.Image = image
	}
	for _, path := range c.mounts {
		asked.Config.Mounts = append(asked.Config.Mounts, &runtimeapi.Mount{ContainerPath: path, HostPath: "/dev/null"})
	}
	if len(guard.Refused(asked)) > 0 {
		return nil, true
	}
	o := guard.Neutralise(asked, list(c.passed), c.passed != nil)
	if len(o.Refused) > 0 {
		return nil, true
	}
	return by.merge(c.image, texts(list(c.env)), texts(slices.Concat(list(c.passed), o.Set)), texts(o.Last)), false
}

func list(env map[string]string) []*runtimeapi.KeyValue {
	var all []*runtimeapi.KeyValue
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, &runtimeapi.KeyValue{Key: name, Value: []byte(env[name])})
	}
	return all
}

// The parts of an OCI specification that the toolkit reads and writes.
type (
	spec struct {
		Version     string            `json:"ociVersion"`
		Process     process           `json:"process"`
		Root        map[string]string `json:"root"`
		Mounts      []mount           `json:"mounts"`
		Annotations map[string]string `json:"annotations"`
		Linux       linux             `json:"linux"`
	}
	process struct {
		Env          []string            `json:"env"`
		Args         []string            `json:"args"`
		Cwd          string              `json:"cwd"`
		Capabilities map[string][]string `json:"capabilities"`
		User         map[string]int      `json:"user"`
	}
	mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options"`
	}
	linux struct {
		Devices []struct {
			Path string `json:"path"`
		} `json:"devices"`
	}
)

// bundle writes the container as a container runtime hands it to an OCI runtime, with that
// environment, and returns the directory.
func bundle(t *testing.T, c container, env []string) string {
	t.Helper()
	s := spec{
		Version: "1.1.0", Root: map[string]string{"path": "rootfs"}, Annotations: c.annotations,
		Process: process{Env: env, Args: []string{"true"}, Cwd: "/",
			User: map[string]int{"uid": 0, "gid": 0}, Capabilities: map[string][]string{}},
	}
	for _, path := range c.mounts {
		s.Mounts = append(s.Mounts, mount{path, "bind", "/dev/null", []string{"rbind"}})
	}
	if c.sysAdmin {
		s.Process.Capabilities["bounding"] = []string{"CAP_SYS_ADMIN"}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), s)
	return dir
}

func write(t *testing.T, path string, content any) {
	t.Helper()
	raw, isText := content.(string)
	if !isText {
		encoded, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		raw = string(encoded)
	}
	if err := os.WriteFile(path, []byte(raw), 0o755); err != nil {
		t.Fatal(err)
	}
}

// execute runs a program of the toolkit with its configuration. Where the configuration has a
// choice, it is the one that lets containers request the most.
func execute(t *testing.T, stdin string, configuration string, arguments ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	write(t, file, "accept-nvidia-visible-devices-as-volume-mounts = true\n"+
		"accept-nvidia-visible-devices-envvar-when-unprivileged = true\n"+configuration)
	command := exec.Command(filepath.Join(programs, arguments[0]), arguments[1:]...)
	command.Env = append(os.Environ(), "NVIDIA_CTK_CONFIG_FILE_PATH="+file)
	command.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", arguments[0], err, &out)
	}
}

// addedByRuntime returns the device nodes that NVIDIA's OCI runtime adds to the container, sorted.
func addedByRuntime(t *testing.T, c container, env []string) []string {
	t.Helper()
	dir, specs := bundle(t, c, env), t.TempDir()
	write(t, filepath.Join(specs, "nvidia.json"), cdiFile())
	execute(t, "", fmt.Sprintf("[nvidia-container-runtime]\nmode = \"cdi\"\nruntimes = [%q]\n"+
		"[nvidia-container-runtime.modes.cdi]\nspec-dirs = [%q]\ndefault-kind = \"nvidia.com/gpu\"\n"+
		"annotation-prefixes = [\"cdi.k8s.io/\"]\n", "/bin/true", specs),
		"nvidia-container-runtime", "create", "--bundle", dir, "id")
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var after spec
	if err := json.Unmarshal(raw, &after); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range after.Linux.Devices {
		paths = append(paths, d.Path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// cdiFile describes the GPUs, each by its number and its UUID, and all of them.
func cdiFile() any {
	type object = map[string]any
	node := func(i int) object {
		return object{"path": fmt.Sprintf("/dev/nvidia%d", i), "type": "c", "major": 195, "minor": i}
	}
	var devices []object
	var every []object
	for i := range gpus {
		every = append(every, node(i))
		for _, name := range []string{fmt.Sprint(i), fmt.Sprint("GPU-", i)} {
			devices = append(devices, object{"name": name, "containerEdits": object{"deviceNodes": []object{node(i)}}})
		}
	}
	devices = append(devices, object{"name": "all", "containerEdits": object{"deviceNodes": every}})
	return object{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
}

// requestedByHook returns the devices that NVIDIA's hook requests of its program, by option; none
// if it does not call it.
func requestedByHook(t *testing.T, c container, env []string) map[string]string {
	t.Helper()
	dir := bundle(t, c, env)
	program, out := filepath.Join(dir, "nvidia-container-cli"), filepath.Join(dir, "asked")
	write(t, program, "#!/bin/sh\nprintf '%s\\n' \"$@\" > "+out+"\n")
	execute(t, fmt.Sprintf(`{"pid": 1, "bundle": %q}`, dir),
		fmt.Sprintf("[nvidia-container-cli]\npath = %q\n[nvidia-container-runtime-hook]\nskip-mode-detection = true\n",
			program), "nvidia-container-runtime-hook", "prestart")
	raw, err := os.ReadFile(out)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]string{}
	for option := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(option), "=")
		if slices.Contains([]string{"--device", "--imex-channel", "--mig-config", "--mig-monitor"}, name) {
			asked[name] = value
		}
	}
	return asked
}

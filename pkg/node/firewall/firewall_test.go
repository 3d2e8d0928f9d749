// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlugins are plugins in some state of being loaded.
type fakePlugins struct {
	loaded  chan struct{}
	said    map[string]device.Firewall
	missing bool
}

func (f *fakePlugins) Loaded() <-chan struct{} { return f.loaded }

func (f *fakePlugins) Firewalls(types.ResourceLocation) (map[string]device.Firewall, bool) {
	return f.said, !f.missing
}

func loadedPlugins(said map[string]device.Firewall) *fakePlugins {
	f := &fakePlugins{loaded: make(chan struct{}), said: said}
	close(f.loaded)
	return f
}

// node is a node for the tests.
type node struct {
	own     []types.ResourceName // resources that are allocated here
	kubelet []types.ResourceName // resources that the kubelet allocates
	files   []string
	made    time.Time // when the files were
	plugins *fakePlugins
	vendors []Vendor
	state   string
}

func (n node) firewall() *Firewall {
	if n.plugins == nil {
		n.plugins = loadedPlugins(nil)
	}
	return New(Options{
		Plugins: n.plugins, StateFile: n.state, Vendors: n.vendors, Files: nodeFiles{fakeFiles{}, n}, Kubelet: n,
	})
}

// KubeletServes implements Kubelet.
func (n node) KubeletServes(_ context.Context, is func(types.ResourceName) bool) bool {
	return slices.ContainsFunc(n.kubelet, is)
}

// nodeFiles are the files of a node.
type nodeFiles struct {
	fakeFiles
	node node
}

// Made implements DeviceFiles.
func (f nodeFiles) Made(path string) (time.Time, bool) {
	return f.node.made, strings.Contains(strings.Join(f.node.files, " "), path)
}

func (n node) guard(t *testing.T) *Guard {
	t.Helper()
	own := map[types.ResourceName]bool{}
	for _, name := range n.own {
		own[name] = true
	}
	guard, err := n.firewall().Guard(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

func envs(pairs ...string) []*runtimeapi.KeyValue {
	var list []*runtimeapi.KeyValue
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		list = append(list, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	return list
}

func configOf(variables []string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{Envs: envs(variables...)}
}

func pairs(list []*runtimeapi.KeyValue) []string {
	var all []string
	for _, env := range list {
		all = append(all, env.GetKey()+"="+string(env.GetValue()))
	}
	return all
}

// injections are what the kubelet's plugin of a resource gave a container.
func injections(resource types.ResourceName, variables ...string) []KubeletInjection {
	injection := KubeletInjection{Resource: resource, Envs: map[string]string{}}
	for _, env := range envs(variables...) {
		injection.Envs[env.GetKey()] = string(env.GetValue())
	}
	return []KubeletInjection{injection}
}

// nothingElse are the variables of a container that has a device of NVIDIA's, by which it would get
// more.
var nothingElse = []string{
	"NVIDIA_GDRCOPY=disabled", "NVIDIA_GDS=disabled", "NVIDIA_IMEX_CHANNELS=void", "NVIDIA_MIG_CONFIG_DEVICES=",
	"NVIDIA_MIG_MONITOR_DEVICES=", "NVIDIA_MOFED=disabled", "NVIDIA_NVSWITCH=disabled",
}

func TestVariablesAreOverriddenWhereTheNodeHasTheVendorsDevices(t *testing.T) {
	nvidia, amd := node{own: []types.ResourceName{"nvidia.com/gpu"}}, node{own: []types.ResourceName{"amd.com/gpu"}}
	habana := node{own: []types.ResourceName{"habana.ai/gaudi"}}
	for name, test := range map[string]struct {
		node      node
		container Container
		has       []string // variables of the container
		given     []string // by plugins, for devices that it was allocated
		want      []string
		last      []string // set when all others are
		attempts  int
	}{
		"a node without devices touches nothing": {has: []string{"NVIDIA_VISIBLE_DEVICES=all"}},
		"a plain container is denied the GPUs":   {node: nvidia, want: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"one that requests them is an attempt": {
			node: nvidia, has: []string{"NVIDIA_VISIBLE_DEVICES=all"},
			want: []string{"NVIDIA_VISIBLE_DEVICES=void"}, attempts: 1,
		},
		"one that requests none is not": {
			node: nvidia, has: []string{"NVIDIA_VISIBLE_DEVICES=none"}, want: []string{"NVIDIA_VISIBLE_DEVICES=void"},
		},
		"a name with blanks, which NVIDIA's runtime does not know": {
			node: nvidia, has: []string{"NVIDIA_VISIBLE_DEVICES =all"}, want: []string{"NVIDIA_VISIBLE_DEVICES=void"},
		},
		"a container with a GPU keeps what its plugin set, and gets no other devices": {
			node: nvidia, has: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MOFED=enabled"},
			given: []string{"NVIDIA_VISIBLE_DEVICES=GPU-0", "NVIDIA_GDS=enabled"},
			want: []string{
				"NVIDIA_GDRCOPY=disabled", "NVIDIA_IMEX_CHANNELS=void", "NVIDIA_MIG_CONFIG_DEVICES=",
				"NVIDIA_MIG_MONITOR_DEVICES=", "NVIDIA_MOFED=disabled", "NVIDIA_NVSWITCH=disabled",
			},
			attempts: 1,
		},
		"AMD's runtime obeys the last of those that begin in one way, which is ours": {
			node: amd, has: []string{"DOCKER_RESOURCE_ANY=void"}, want: []string{"AMD_VISIBLE_DEVICES=none"},
		},
		"and under NRI it would be that one, as the other is there before": {
			node: amd, container: Container{Adjusted: true},
			has:  []string{"AMD_VISIBLE_DEVICES=none", "DOCKER_RESOURCE_ANY=0"},
			want: []string{"AMD_VISIBLE_DEVICES=none", "DOCKER_RESOURCE_ANY=none"}, attempts: 1,
		},
		"which is then what the container was allocated": {
			node: amd, container: Container{Adjusted: true},
			has:   []string{"AMD_VISIBLE_DEVICES=1", "DOCKER_RESOURCE_ANY=0"},
			given: []string{"AMD_VISIBLE_DEVICES=3"}, want: []string{"DOCKER_RESOURCE_ANY=3"}, attempts: 1,
		},
		"Habana's takes the first whose name begins so, and void for all": {
			node: habana, container: Container{Adjusted: true}, has: []string{"HABANA_VISIBLE_DEVICES_=all"},
			want: []string{"HABANA_VISIBLE_DEVICES=none", "HABANA_VISIBLE_DEVICES_=none"}, attempts: 1,
		},
		"a driver without any plugin is enough": {
			node: node{files: []string{"/dev/kfd"}}, want: []string{"AMD_VISIBLE_DEVICES=none"},
		},
		"unless the kubelet allocates that vendor's devices": {
			node: node{files: []string{"/dev/kfd"}, kubelet: []types.ResourceName{"amd.com/gpu"}},
			has:  []string{"AMD_VISIBLE_DEVICES=all"},
		},
		"where both allocate, what the kubelet's plugin gave stays": {
			node:      nvidia,
			container: Container{Kubelet: injections("nvidia.com/other", "NVIDIA_VISIBLE_DEVICES=GPU-7")},
			has:       []string{"NVIDIA_VISIBLE_DEVICES=GPU-7"},
			want:      append([]string{"NVIDIA_VISIBLE_DEVICES=GPU-7"}, nothingElse...),
		},
		"and the pod does not replace it by another value": {
			node:      nvidia,
			container: Container{Kubelet: injections("nvidia.com/other", "NVIDIA_VISIBLE_DEVICES=GPU-7")},
			has:       []string{"NVIDIA_VISIBLE_DEVICES=GPU-7", "NVIDIA_VISIBLE_DEVICES=all"},
			want:      append([]string{"NVIDIA_VISIBLE_DEVICES=GPU-7"}, nothingElse...), attempts: 1,
		},
		"of another resource it exempts nothing": {
			node:      nvidia,
			container: Container{Kubelet: injections("nvidia.com/hostdev")},
			has:       []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0"},
			want:      append([]string{"NVIDIA_VISIBLE_DEVICES=void"}, nothingElse...), attempts: 2,
		},
		"nor does another vendor's": {
			node:      nvidia,
			container: Container{Kubelet: injections("other.com/nic", "NVIDIA_VISIBLE_DEVICES=all")},
			has:       []string{"NVIDIA_VISIBLE_DEVICES=all"},
			want:      []string{"NVIDIA_VISIBLE_DEVICES=void"}, attempts: 1,
		},
		"image and pod that set the same are one attempt": {
			node: nvidia, container: Container{Adjusted: true},
			has:  []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0"},
			want: []string{"NVIDIA_VISIBLE_DEVICES=void"}, last: []string{"NVIDIA_VISIBLE_DEVICES=void"}, attempts: 1,
		},
		"so is what both a plugin and a built-in rule know": {
			node: node{own: nvidia.own, plugins: loadedPlugins(map[string]device.Firewall{
				"gpus": {Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"}},
			})},
			has: []string{"NVIDIA_VISIBLE_DEVICES=all"}, want: []string{"NVIDIA_VISIBLE_DEVICES=void"}, attempts: 1,
		},
		"what a plugin says counts, too": {
			node: node{plugins: loadedPlugins(map[string]device.Firewall{
				"widgets": {Envs: map[string]string{"VISIBLE_WIDGETS": "void"}},
			})},
			has: []string{"VISIBLE_WIDGETS=all"}, want: []string{"VISIBLE_WIDGETS=void"}, attempts: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.container.Config = &runtimeapi.ContainerConfig{Envs: envs(test.has...)}
			o := test.node.guard(t).Neutralise(test.container, envs(test.given...), len(test.given) > 0)
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, pairs(o.Set)); diff != "" {
				t.Errorf("set (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.last, pairs(o.Last)); diff != "" {
				t.Errorf("set last (-want +got):\n%s", diff)
			}
			if len(o.Ended) != test.attempts || len(o.Refused) > 0 {
				t.Errorf("attempts: %v, want %d; refused: %v", o.Ended, test.attempts, o.Refused)
			}
		})
	}
}

func TestVariablesThatCannotBeOverriddenAreRefused(t *testing.T) {
	gpus := node{own: []types.ResourceName{"nvidia.com/gpu"}}
	mount := func(path string) Container {
		return Container{Config: &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{ContainerPath: path}}}}
	}
	annotated := func(key, value string) Container {
		return Container{PodAnnotations: map[string]string{key: value}}
	}
	allocated := func(device string) Container {
		return Container{Config: &runtimeapi.ContainerConfig{CDIDevices: []*runtimeapi.CDIDevice{{Name: device}}}}
	}
	claimed := func(device, driver string) Container {
		c := allocated(device)
		c.Claimed = map[string]string{device: driver}
		return c
	}
	injection := func(injection KubeletInjection, device string) Container {
		c := allocated(device)
		c.Kubelet = []KubeletInjection{injection}
		return c
	}
	for name, test := range map[string]struct {
		node      node
		container Container
		want      Way
	}{
		"a CDI annotation": {gpus, annotated("cdi.k8s.io/x", "nvidia.com/gpu=all"), ByAnnotation},
		"one with the vendor's own prefix": {
			gpus, annotated("nvidia.cdi.k8s.io/x", "nvidia.com/gpu=0"), ByAnnotation,
		},
		"the devices that a runtime makes up": {
			gpus, annotated("cdi.k8s.io/x", "runtime.nvidia.com/gpu=0"), ByAnnotation,
		},
		"a name without a kind, as all": {gpus, annotated("cdi.k8s.io/x", "all"), ByAnnotation},
		"the second of two devices": {
			gpus, annotated("cdi.k8s.io/x", "a.b/c=d,nvidia.com/gpu=1"), ByAnnotation,
		},
		"a name behind an empty one": {gpus, annotated("cdi.k8s.io/x", ", nvidia.com/gpu=all"), ByAnnotation},
		"one that only the sandbox has": {
			gpus, Container{SandboxAnnotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=all"}}, ByAnnotation,
		},
		"another vendor's device":       {gpus, annotated("cdi.k8s.io/x", "other.com/nic=1"), ""},
		"an annotation of another kind": {gpus, annotated("example.com/cdi.k8s.io", "nvidia.com/gpu=0"), ""},
		"a device file, where CRI-O allows that": {
			gpus, annotated("io.kubernetes.cri-o.Devices", "/dev/nvidia3:/dev/x:rw"), ByAnnotation,
		},
		"another device file":               {gpus, annotated("io.kubernetes.cri-o.Devices", "/dev/fuse"), ""},
		"a mount that names a device":       {gpus, mount("/var/run/nvidia-container-devices/all"), ByMount},
		"a mount whose path only begins so": {gpus, mount("/var/run/nvidia-container-devices0"), ByMount},
		"a mount whose path is written otherwise": {
			gpus, mount("/var//run/x/../nvidia-container-devices/0"), ByMount,
		},
		"another mount": {gpus, mount("/var/run/nvidia"), ""},
		"a claim for a device that is managed here": {
			gpus, claimed("k8s.gpu.nvidia.com/claim=a-gpu-0", "gpu.nvidia.com"), ByCDI,
		},
		"one that a driver of somebody else's has prepared": {
			gpus, claimed("nvidia.com/gpu=0", "driver.example"), ByCDI,
		},
		"one of which nothing is known": {gpus, claimed("k8s.compute-domain.nvidia.com/claim=a", ""), ByCDI},
		"a claim for what is not": {
			gpus, claimed("k8s.compute-domain.nvidia.com/claim=a", "compute-domain.nvidia.com"), "",
		},
		"a device that the kubelet's plugin of another resource gave": {gpus, injection(KubeletInjection{
			Resource: "nvidia.com/other", CDIDevices: []string{"nvidia.com/other=7"},
		}, "nvidia.com/other=7"), ""},
		"another one with it": {gpus, injection(KubeletInjection{
			Resource: "nvidia.com/other", CDIDevices: []string{"nvidia.com/other=7"},
		}, "nvidia.com/gpu=0"), ByCDI},
		"one that another vendor's plugin gave": {gpus, injection(KubeletInjection{
			Resource: "other.com/nic", CDIDevices: []string{"nvidia.com/gpu=0"},
		}, "nvidia.com/gpu=0"), ByCDI},
		"an annotation of the pod with it": {gpus, Container{
			PodAnnotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=all"},
			Kubelet:        []KubeletInjection{{Resource: "nvidia.com/hostdev"}},
		}, ByAnnotation},
		"a mount that the kubelet's plugin gave": {gpus, Container{
			Config: mount("/var/run/nvidia-container-devices/GPU-7").Config,
			Kubelet: []KubeletInjection{{
				Resource: "nvidia.com/other", Mounts: []string{"/var/run/nvidia-container-devices/GPU-7"},
			}},
		}, ""},
		"another mount with it": {gpus, Container{
			Config:  mount("/var/run/nvidia-container-devices/all").Config,
			Kubelet: []KubeletInjection{{Resource: "nvidia.com/other"}},
		}, ByMount},
		"an annotation of the plugin's with another value": {gpus, Container{
			Config: &runtimeapi.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=0"}},
			Kubelet: []KubeletInjection{{
				Resource: "nvidia.com/other", Annotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/other=7"},
			}},
		}, ByCDI},
		"an annotation that the kubelet's plugin gave": {gpus, Container{
			Config: &runtimeapi.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/other=7"}},
			Kubelet: []KubeletInjection{{
				Resource: "nvidia.com/other", Annotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/other=7"},
			}},
		}, ""},
		"the device by which kubecri itself sets variables": {
			gpus, annotated("cdi.k8s.io/x", "kubedevice.io/variables=v0"), ByAnnotation,
		},
		"a claim for a device of a driver without a plugin here": {
			node{files: []string{"/dev/nvidiactl"}}, allocated("k8s.gpu.nvidia.com/claim=a-gpu-0"), "",
		},
		"a vendor that the configuration declares": {
			node{own: []types.ResourceName{"mthreads.com/gpu"}, vendors: []Vendor{{Name: "mthreads.com"}}},
			annotated("cdi.k8s.io/x", "mthreads.com/gpu=all"), ByAnnotation,
		},
		"a vendor that is not built in": {
			node{own: []types.ResourceName{"vendor.example/widget"}}, allocated("vendor.example/widget=1"), ByCDI,
		},
		"what a plugin says": {
			node{plugins: loadedPlugins(map[string]device.Firewall{"w": {MountPaths: []string{"/run/widgets"}}})},
			mount("/run/widgets/1"), ByMount,
		},
	} {
		var got Way
		for _, attempt := range test.node.guard(t).Refused(test.container) {
			got = attempt.Way
		}
		if got != test.want {
			t.Errorf("%s: refused for %q, want %q", name, got, test.want)
		}
	}
}

func TestAVolumeOfTheImageRequestsDevicesAsAMountDoes(t *testing.T) {
	widgets := node{vendors: []Vendor{{Name: "vendor.example", MountPaths: []string{"/run/widgets"}}},
		own: []types.ResourceName{"vendor.example/widget"}}
	for name, test := range map[string]struct {
		volume  string
		mounts  []*runtimeapi.Mount
		refused bool
	}{
		"one that names a device":          {"/run/widgets/1", nil, true},
		"one whose path begins at nothing": {"run/x/../widgets/1", nil, true},
		"another one":                      {"/data", nil, false},
		"one at which the pod mounts something, which is looked at itself": {
			"/run/widgets/1", []*runtimeapi.Mount{{ContainerPath: "/run/widgets/1/"}}, false,
		},
	} {
		guard := widgets.guard(t)
		c := Container{
			Config: &runtimeapi.ContainerConfig{Mounts: test.mounts}, ImageVolumes: []string{"/etc/x", test.volume},
		}
		if !guard.NeedsImage(c, false) {
			t.Errorf("%s: the image is not needed", name)
		}
		if got := guard.RefusedVolumes(c); (len(got) == 1 && got[0].Way == ByMount) != test.refused {
			t.Errorf("%s: refused %v", name, got)
		}
	}
}

func TestRulesOfAPluginThatCannotBeLoadedStillHold(t *testing.T) {
	state := filepath.Join(t.TempDir(), "firewall")
	widgets := map[string]device.Firewall{"widgets": {Envs: map[string]string{"WIDGETS": "void"}}}
	guards := func(what string, plugins *fakePlugins, want bool) {
		t.Helper()
		f := node{plugins: plugins, state: state}.firewall()
		f.Load(t.Context())
		guard, err := f.Guard(t.Context(), nil)
		if err != nil || guard.Active() != want {
			t.Errorf("%s: guards: %t, want %t (%v)", what, guard.Active(), want, err)
		}
		select {
		case <-plugins.loaded:
			f.Run(t.Context())
		default:
		}
	}
	guards("it is loaded", loadedPlugins(widgets), true)
	guards("kubecri starts again, and it is not loaded yet", &fakePlugins{loaded: make(chan struct{})}, true)
	broken := loadedPlugins(nil)
	broken.missing = true
	guards("it cannot be loaded", broken, true)
	guards("and once more", broken, true)
	guards("it was removed", loadedPlugins(nil), false)
	broken = loadedPlugins(nil)
	broken.missing = true
	guards("after that it is forgotten", broken, false)

	if err := os.WriteFile(state, []byte("not a state file"), 0o600); err != nil {
		t.Fatal(err)
	}
	guards("the state file is corrupt", loadedPlugins(widgets), true)
}

func TestANodeThatNeverLoadedItsPluginsWaitsForThem(t *testing.T) {
	plugins := &fakePlugins{
		loaded: make(chan struct{}), said: map[string]device.Firewall{"w": {MountPaths: []string{"/run/widgets"}}},
	}
	f := node{plugins: plugins}.firewall()
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Guard(impatient, nil); err == nil {
		t.Error("a container does not wait for plugins of which nothing is known")
	}
	close(plugins.loaded)
	if guard, err := f.Guard(impatient, nil); err != nil || !guard.Active() {
		t.Errorf("when they are loaded: %v", err)
	}
}

func TestAllowlist(t *testing.T) {
	list, err := ParseAllowlist([]string{"gpu-operator/*", "monitoring/dcgm-exporter", "monitoring/other"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		namespace, account string
		allowed, decided   bool
	}{
		"any account of a namespace":          {"gpu-operator", "x", true, true},
		"that one, known or not":              {"gpu-operator", "", true, true},
		"an account by name":                  {"monitoring", "dcgm-exporter", true, true},
		"another account":                     {"monitoring", "default", false, true},
		"an account that is not known":        {"monitoring", "", false, false},
		"another namespace, with any account": {"team-a", "", false, true},
	} {
		if allowed, decided := list.Allows(test.namespace, test.account); allowed != test.allowed ||
			decided != test.decided {
			t.Errorf("%s: %t, %t", name, allowed, decided)
		}
	}
	for _, entry := range []string{"", "monitoring", "*/x", "*", "a/b/c", "A/x", "a/", "a/x y"} {
		if _, err := ParseAllowlist([]string{entry}); err == nil || !strings.Contains(err.Error(), "namespace/") {
			t.Errorf("%q is accepted: %v", entry, err)
		}
	}
}

func FuzzContainersNeverPanic(f *testing.F) {
	f.Add("cdi.k8s.io/x", "nvidia.com/gpu=all", "/var/run/nvidia-container-devices/0", "NVIDIA_VISIBLE_DEVICES")
	f.Add("io.kubernetes.cri-o.Devices", "/dev/nvidia0", "//", " AMD_VISIBLE_DEVICES")
	f.Fuzz(func(t *testing.T, key, value, path, env string) {
		guard := node{files: []string{"/dev/nvidiactl", "/dev/kfd"}, own: []types.ResourceName{"a.b/c"}}.guard(t)
		c := Container{
			PodAnnotations: map[string]string{key: value},
			Config: &runtimeapi.ContainerConfig{
				Envs: envs(env + "=" + value), Mounts: []*runtimeapi.Mount{{ContainerPath: path}},
				CDIDevices: []*runtimeapi.CDIDevice{{Name: value}}, Annotations: map[string]string{key: value},
			},
		}
		guard.Refused(c)
		seen := map[string]bool{}
		for _, one := range guard.Neutralise(c, nil, true).Set {
			if seen[one.GetKey()] {
				t.Errorf("%s is set twice", one.GetKey())
			}
			seen[one.GetKey()] = true
		}
	})
}

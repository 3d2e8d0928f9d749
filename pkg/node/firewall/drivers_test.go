// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"path/filepath"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// What a driver of resource claims prepares stays if the node's configuration says that it gives
// out nothing that is managed here, or a plugin says it of its own vendor.
func TestDriversOfResourceClaimsAreDeclaredByTheNodeAndByPluginsOfTheirOwnVendor(t *testing.T) {
	const tools, gpuDevice, toolDevice = "gpu-tools.example.com", "tools.nvidia.com/tool=0", "example.com/tool=0"
	nvidia, widgets := []types.ResourceName{"nvidia.com/gpu"}, []types.ResourceName{"example.com/widget"}
	declared := func(name string, drivers ...string) []Vendor { return []Vendor{{Name: name, OtherDrivers: drivers}} }
	says := func(kinds ...string) *fakePlugins {
		return loadedPlugins(map[string]device.Firewall{
			"p": {CDIKinds: kinds, OtherDrivers: []string{tools}},
		})
	}
	plain, gpuDeclared := node{own: nvidia}, node{own: nvidia, vendors: declared("nvidia.com", tools)}
	widget, widgetDeclared := node{own: widgets}, node{own: widgets, vendors: declared("example.com", tools)}
	by := func(n node, plugins *fakePlugins) node {
		n.plugins = plugins
		return n
	}
	for name, test := range map[string]struct {
		node           node
		device, driver string
		passes         bool
	}{
		"not declared at all":            {plain, gpuDevice, tools, false},
		"declared of a built-in vendor":  {gpuDeclared, gpuDevice, tools, true},
		"the built-in ones stay":         {gpuDeclared, gpuDevice, "compute-domain.nvidia.com", true},
		"another driver":                 {gpuDeclared, gpuDevice, "gpu.nvidia.com", false},
		"a driver of which is not known": {gpuDeclared, gpuDevice, "", false},
		"declared of another vendor": {
			node{own: nvidia, vendors: declared("amd.com", tools)}, gpuDevice, tools, false,
		},
		"declared of one not built in":  {widgetDeclared, toolDevice, tools, true},
		"of that one, another driver":   {widgetDeclared, toolDevice, "a.b", false},
		"a plugin's, of its own vendor": {by(widget, says("example.com/*")), toolDevice, tools, true},
		"a plugin's, of kinds below it": {
			by(widget, says("*.example.com/*")), "k8s.tools.example.com/c=0", tools, true,
		},
		"a plugin's, of another kind":     {by(widget, says("example.com/widget")), toolDevice, tools, false},
		"a plugin's, of every vendor":     {by(widget, says("*/*")), toolDevice, tools, false},
		"a plugin's, of every one in com": {by(widget, says("*.com/*")), toolDevice, tools, false},
		"a plugin's, of a built-in one":   {by(plain, says("*.nvidia.com/*")), gpuDevice, tools, false},
		"a plugin's, of a declared one": {
			by(node{own: widgets, vendors: declared("example.com")}, says("example.com/*")), toolDevice, tools, false,
		},
		"the node's, for a plugin's rule": {
			by(gpuDeclared, loadedPlugins(map[string]device.Firewall{"p": {CDIKinds: []string{"*.nvidia.com/*"}}})),
			gpuDevice, tools, true,
		},
		"a plugin's, against another's rule": {
			by(widget, loadedPlugins(map[string]device.Firewall{
				"p": {CDIKinds: []string{"example.com/*"}, OtherDrivers: []string{tools}},
				"q": {CDIKinds: []string{"example.com/*"}},
			})), toolDevice, tools, false,
		},
	} {
		c := Container{
			Config:  &runtimeapi.ContainerConfig{CDIDevices: []*runtimeapi.CDIDevice{{Name: test.device}}},
			Claimed: map[string]string{test.device: test.driver},
		}
		if refused := test.node.guard(t).Refused(c); (len(refused) == 0) != test.passes {
			t.Errorf("%s: refused for %v, want that it passes %t", name, refused, test.passes)
		}
	}
	if nvidia := vendors[indexOf(vendors, "nvidia.com")]; len(nvidia.otherDrivers) != 1 {
		t.Errorf("a declaration has changed what is built in: %q", nvidia.otherDrivers)
	}
}

// Another container of the pod may have the claim: a name that the pod itself writes never passes.
func TestAClaimOfThePodPermitsOnlyWhatTheKubeletGivesTheContainer(t *testing.T) {
	const channel = "k8s.compute-domain.nvidia.com/claim=0"
	named := func(config *runtimeapi.ContainerConfig) Container { return Container{Config: config} }
	annotations := map[string]string{"cdi.k8s.io/x": channel}
	for name, c := range map[string]Container{
		"an annotation of the pod":       {PodAnnotations: annotations},
		"an annotation of its sandbox":   {SandboxAnnotations: annotations},
		"an annotation of the container": named(&runtimeapi.ContainerConfig{Annotations: annotations}),
		"a mount": named(&runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{
			ContainerPath: "/var/run/nvidia-container-devices/cdi/" + channel,
		}}}),
		"a variable": named(configOf([]string{"NVIDIA_VISIBLE_DEVICES=" + channel})),
		"a variable of the image": {
			Config: configOf(nil), Image: envs("NVIDIA_VISIBLE_DEVICES=" + channel),
		},
	} {
		c.Claimed = map[string]string{channel: "compute-domain.nvidia.com"}
		guard := node{own: []types.ResourceName{"nvidia.com/gpu"}}.guard(t)
		o := guard.Neutralise(c, nil, false)
		isOverridden := slices.Contains(pairs(o.Set), "NVIDIA_VISIBLE_DEVICES=void")
		isVariable := len(c.Config.GetEnvs())+len(c.Image) > 0
		if refused := guard.Refused(c); len(refused) == 0 && !isVariable || !isOverridden {
			t.Errorf("%s: refused for %v, set %q", name, refused, pairs(o.Set))
		}
		c.Config = &runtimeapi.ContainerConfig{CDIDevices: []*runtimeapi.CDIDevice{{Name: channel}}}
		c.PodAnnotations, c.SandboxAnnotations = nil, nil
		if refused := guard.Refused(c); len(refused) > 0 {
			t.Errorf("what the kubelet gives: refused for %v", refused)
		}
	}
}

func TestDriversThatAPluginHasDeclaredHoldWhileItCannotBeLoaded(t *testing.T) {
	state := filepath.Join(t.TempDir(), "firewall.json")
	widgets := node{own: []types.ResourceName{"example.com/widget"}, state: state}
	before := widgets
	before.plugins = loadedPlugins(map[string]device.Firewall{
		"p": {CDIKinds: []string{"example.com/*"}, OtherDrivers: []string{"tools.example.com"}},
	})
	before.firewall().Run(t.Context())
	widgets.plugins = loadedPlugins(nil)
	widgets.plugins.missing = true
	wall := widgets.firewall()
	wall.Load(t.Context())
	guard, err := wall.Guard(t.Context(), map[types.ResourceName]bool{"example.com/widget": true})
	if err != nil {
		t.Fatal(err)
	}
	c := Container{
		Config:  &runtimeapi.ContainerConfig{CDIDevices: []*runtimeapi.CDIDevice{{Name: "example.com/tool=0"}}},
		Claimed: map[string]string{"example.com/tool=0": "tools.example.com"},
	}
	if refused := guard.Refused(c); len(refused) > 0 {
		t.Errorf("refused for %v", refused)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
)

// startRegistry runs a manager with a registry directory and returns that directory, too.
func startRegistry(t *testing.T) (*testManager, string) {
	t.Helper()
	directory := tempDirectory(t)
	registry := filepath.Join(directory, RegistryDirName)
	if err := os.MkdirAll(filepath.Join(registry, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	return startManager(t, directory, func(o *Options) { o.RegistryDir = registry }), registry
}

// offer puts a plugin into the registry. It says what it is when it is asked.
func offer(t *testing.T, socket string, info *registrationapi.PluginInfo, devices ...*pluginapi.Device) *testPlugin {
	t.Helper()
	p := &testPlugin{fakeplugin.New(devices...), socket}
	p.Info = info
	p.serve(t)
	return p
}

func pluginInfo(change ...func(*registrationapi.PluginInfo)) *registrationapi.PluginInfo {
	info := &registrationapi.PluginInfo{Type: registrationapi.DevicePlugin, Name: string(qat),
		SupportedVersions: []string{"v1alpha", pluginapi.Version}}
	for _, c := range change {
		c(info)
	}
	return info
}

func TestAPluginInTheRegistryIsFoundAndTold(t *testing.T) {
	for name, place := range map[string]string{"in the directory": "p.sock", "in a directory below": "below/p.sock"} {
		t.Run(name, func(t *testing.T) {
			h, registry := startRegistry(t)
			p := offer(t, filepath.Join(registry, place), pluginInfo(), dev("a"))
			if outcome := <-p.Outcomes; !outcome.GetPluginRegistered() {
				t.Fatalf("the plugin was notified of %v", outcome)
			}
			h.has(t, qat, map[string]bool{"none/a": true})
		})
	}
}

func TestAPluginOfTheRegistryIsGoneWithItsSocket(t *testing.T) {
	h, registry := startRegistry(t)
	p := offer(t, filepath.Join(registry, "p.sock"), pluginInfo(), dev("a"))
	h.has(t, qat, map[string]bool{"none/a": true})

	if err := os.Remove(p.socket); err != nil {
		t.Fatal(err)
	}
	h.has(t, qat, map[string]bool{"none/a": false})
	p.Stop()
	p.serve(t)
	h.has(t, qat, map[string]bool{"none/a": true})
}

func TestAPluginThatWasThereBeforeIsFound(t *testing.T) {
	directory := tempDirectory(t)
	registry := filepath.Join(directory, RegistryDirName)
	if err := os.MkdirAll(registry, 0o700); err != nil {
		t.Fatal(err)
	}
	p := offer(t, filepath.Join(registry, "p.sock"), pluginInfo(), dev("a"))
	h := startManager(t, directory, func(o *Options) { o.RegistryDir = registry })
	h.has(t, qat, map[string]bool{"none/a": true})
	if _, err := os.Lstat(p.socket); err != nil {
		t.Errorf("the plugin's socket is gone: %v", err)
	}
}

func TestAPluginMayServeAtAnotherSocketOfTheDirectorys(t *testing.T) {
	h, registry := startRegistry(t)
	serving := startPlugin(t, h.socket("serving.sock"), dev("a"))
	offer(t, filepath.Join(registry, "p.sock"),
		pluginInfo(func(i *registrationapi.PluginInfo) { i.Endpoint = serving.socket }))
	h.has(t, qat, map[string]bool{"none/a": true})
}

func TestAPluginOfTheRegistryThatIsRefusedIsToldWhy(t *testing.T) {
	type info = registrationapi.PluginInfo
	for want, change := range map[string]func(*info){
		`plugin type "CSIPlugin" is not supported`:      func(i *info) { i.Type = registrationapi.CSIPlugin },
		`API version "v2" is not supported`:             func(i *info) { i.SupportedVersions = []string{"v2"} },
		`the resource name "qat" is invalid`:            func(i *info) { i.Name = "qat" },
		`endpoint "/run/p.sock" is not in the direct`:   func(i *info) { i.Endpoint = "/run/p.sock" },
		`endpoint "p.sock" is not in the directory of `: func(i *info) { i.Endpoint = "p.sock" },
	} {
		t.Run(want, func(t *testing.T) {
			h, registry := startRegistry(t)
			p := offer(t, filepath.Join(registry, "p.sock"), pluginInfo(change), dev("a"))
			if outcome := <-p.Outcomes; outcome.GetPluginRegistered() || !strings.Contains(outcome.GetError(), want) {
				t.Errorf("the plugin was notified of %v", outcome)
			}
			h.has(t, qat, nil)
		})
	}
}

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

func TestAPluginInTheRegistryIsFoundAndNotified(t *testing.T) {
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

// A plugin sees the directory at another path, or has written down the kubelet's.
func TestTheEndpointOfARegistryPluginIsAPathOfItsOwnContainer(t *testing.T) {
	for name, test := range map[string]struct{ endpoint, serves string }{
		"none":                                {"", "registry/p.sock"},
		"the socket by its path here":         {"HERE/registry/p.sock", "registry/p.sock"},
		"the socket by the kubelet's path":    {"/var/lib/kubelet/plugins_registry/p.sock", "registry/p.sock"},
		"the socket by its name":              {"p.sock", "registry/p.sock"},
		"a path that is not cleaned":          {"/var/lib/kubelet//plugins_registry/./p.sock", "registry/p.sock"},
		"another socket of the directory":     {"/anywhere/serving.sock", "registry/serving.sock"},
		"a socket where plugins register":     {"HERE/plugins/serving.sock", "plugins/serving.sock"},
		"the same by the kubelet's path":      {"/var/lib/kubelet/device-plugins/serving.sock", "plugins/serving.sock"},
		"a path of the host that has another": {"HERE/elsewhere/p.sock", "registry/p.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			h, registry := startRegistry(t)
			directory := filepath.Dir(registry)
			endpoint := strings.NewReplacer("HERE/registry", registry, "HERE/plugins", h.directory, "HERE", directory).
				Replace(test.endpoint)
			elsewhere := filepath.Join(directory, "elsewhere")
			if err := os.Mkdir(elsewhere, 0o700); err != nil {
				t.Fatal(err)
			}
			startPlugin(t, filepath.Join(elsewhere, "p.sock"), dev("wrong"))
			serves := strings.NewReplacer("registry/", registry+"/", "plugins/", h.directory+"/").Replace(test.serves)
			devices := []*pluginapi.Device{dev("wrong")}
			if filepath.Base(serves) == "p.sock" {
				devices = []*pluginapi.Device{dev("a")}
			} else {
				startPlugin(t, serves, dev("a"))
			}
			p := offer(t, filepath.Join(registry, "p.sock"),
				pluginInfo(func(i *registrationapi.PluginInfo) { i.Endpoint = endpoint }), devices...)
			if outcome := <-p.Outcomes; !outcome.GetPluginRegistered() {
				t.Fatalf("the plugin was notified of %v", outcome)
			}
			h.has(t, qat, map[string]bool{"none/a": true})
		})
	}
}

func TestARegistryPluginMayServeInAnotherDirectory(t *testing.T) {
	for name, test := range map[string]struct {
		endpoint string
		serves   string // empty for nowhere
	}{
		"below the registry": {
			"/var/lib/kubelet/plugins_registry/below/serving.sock", "plugins_registry/below/serving.sock",
		},
		"below where plugins register": {
			"/var/lib/kubelet/device-plugins/below/serving.sock", "device-plugins/below/serving.sock",
		},
		"in a directory of its own": {
			"/var/lib/kubelet/plugins/x/serving.sock", "kubelet/plugins/x/serving.sock",
		},
		"by the path that the node has": {
			"HERE/kubelet/plugins/x/serving.sock", "kubelet/plugins/x/serving.sock",
		},
		"below the registry by that": {
			"HERE/plugins_registry/below/serving.sock", "plugins_registry/below/serving.sock",
		},
		"the kubelet's registry by that": {
			"HERE/kubelet/plugins_registry/below/serving.sock", "plugins_registry/below/serving.sock",
		},
		"a directory that is not hosted": {
			"HERE/elsewhere/serving.sock", "",
		},
		"a directory to which a link leads": {
			"/var/lib/kubelet/out/serving.sock", "",
		},
		"a path that leads out": {
			"/var/lib/kubelet/../elsewhere/serving.sock", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := tempDirectory(t)
			here := func(path string) string { return filepath.Join(directory, path) }
			for _, made := range []string{
				"plugins_registry/below", "device-plugins/below", "kubelet/plugins/x", "elsewhere",
			} {
				if err := os.MkdirAll(here(made), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("../elsewhere", here("kubelet/out")); err != nil {
				t.Fatal(err)
			}
			m := New(Options{
				Dir: here("device-plugins"), RegistryDir: here("plugins_registry"), KubeletDir: here("kubelet"),
				StateFile: here("state"),
			})
			startPlugin(t, here("elsewhere/serving.sock"))
			want := here("plugins_registry/serving.sock") // which is not there
			if test.serves != "" {
				want = here(test.serves)
				startPlugin(t, want)
			}
			endpoint := strings.Replace(test.endpoint, "HERE", directory, 1)
			got, err := m.endpointOf(here("plugins_registry/p.sock"), endpoint)
			if err != nil || got != want {
				t.Errorf("it serves at %s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestARefusedRegistryPluginIsNotifiedOfTheReason(t *testing.T) {
	type info = registrationapi.PluginInfo
	for want, change := range map[string]func(*info){
		`plugin type "CSIPlugin" is not supported`:      func(i *info) { i.Type = registrationapi.CSIPlugin },
		`API version "v2" is not supported`:             func(i *info) { i.SupportedVersions = []string{"v2"} },
		`the resource name "qat" is invalid`:            func(i *info) { i.Name = "qat" },
		`endpoint "/run/.." does not end with the name`: func(i *info) { i.Endpoint = "/run/.." },
		`endpoint "/x/kubelet.sock" does not end with`:  func(i *info) { i.Endpoint = "/x/kubelet.sock" },
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

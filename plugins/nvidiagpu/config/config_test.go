// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSettingsOfAFileAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		want    Config
	}{
		"an empty file is NVIDIA's defaults": {want: Config{MIG: None, EnvVar: true}},
		"the file of NVIDIA's README": {
			content: `
version: v1
flags:
  migStrategy: "none"
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin:
    passDeviceSpecs: false
    deviceListStrategy: "envvar"
    deviceIDStrategy: "uuid"
`,
			want: Config{MIG: None, EnvVar: true},
		},
		"instances by profile, with device nodes": {
			content: "flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true}}",
			want:    Config{MIG: Mixed, EnvVar: true, PassDeviceSpecs: true},
		},
		"a list of strategies": {
			content: "flags: {migStrategy: single, plugin: {deviceListStrategy: [volume-mounts, envvar]}}",
			want:    Config{MIG: Single, EnvVar: true, VolumeMounts: true},
		},
		"CDI devices": {
			content: "flags: {plugin: {deviceListStrategy: cdi-cri}}",
			want:    Config{MIG: None, CDI: true},
		},
		"layouts, which NVIDIA's plugin ignores": {
			content: `
flags: {migStrategy: mixed}
kubedevice:
  migLayouts:
  - {gpus: [GPU-a], instances: [3g.40gb, 1g.10gb, 1g.10gb], replaceIdle: true}
  - {instances: [7g.80gb]}
`,
			want: Config{MIG: Mixed, EnvVar: true, Layouts: []Layout{
				{GPUs: []string{"GPU-a"}, Profiles: []string{"3g.40gb", "1g.10gb", "1g.10gb"}, ReplaceIdle: true},
				{Profiles: []string{"7g.80gb"}},
			}},
		},
		"one strategy that is not the default": {
			content: "flags: {plugin: {deviceListStrategy: volume-mounts}}",
			want:    Config{MIG: None, VolumeMounts: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(test.content))
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(Config{}, "Notes")); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestSettingsWithoutEffectAreReported(t *testing.T) {
	got, err := Parse([]byte(`
flags:
  failOnInitError: false
  mpsRoot: /run/nvidia/mps
  useNodeFeatureAPI: true
  gfd: {oneshot: false, sleepInterval: 60s}
  plugin: {cdiAnnotationPrefix: cdi.k8s.io/, nvidiaCTKPath: /usr/bin/nvidia-ctk, containerDriverRoot: /driver-root}
`))
	var fields []string
	for _, note := range got.Notes {
		field, _, _ := strings.Cut(note, " has no effect here: ")
		fields = append(fields, field)
	}
	want := []string{
		"flags.failOnInitError", "flags.mpsRoot", "flags.useNodeFeatureAPI", "flags.gfd",
		"flags.plugin.cdiAnnotationPrefix", "flags.plugin.nvidiaCTKPath", "flags.plugin.containerDriverRoot",
	}
	if diff := cmp.Diff(want, fields); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestErrorsNameUnsupportedFields(t *testing.T) {
	for content, want := range map[string]string{
		"version: v2":                                               `version is "v2": use v1`,
		"flags: {migStrategy: both}":                                `flags.migStrategy is "both"`,
		"flags: {nvidiaDriverRoot: /run/nvidia/driver}":             `flags.nvidiaDriverRoot is "/run/nvidia/driver"`,
		"flags: {nvidiaDevRoot: /dev-root}":                         `flags.nvidiaDevRoot is "/dev-root"`,
		"flags: {gdsEnabled: true}":                                 "flags.gdsEnabled is true",
		"flags: {gdrcopyEnabled: true}":                             "flags.gdrcopyEnabled is true",
		"flags: {mofedEnabled: true}":                               "flags.mofedEnabled is true",
		"flags: {deviceDiscoveryStrategy: tegra}":                   `flags.deviceDiscoveryStrategy is "tegra"`,
		"flags: {plugin: {deviceListStrategy: [cdi-annotations]}}":  "deviceListStrategy is cdi-annotations",
		"flags: {plugin: {deviceListStrategy: other}}":              `flags.plugin.deviceListStrategy is "other"`,
		"flags: {plugin: {deviceListStrategy: 1}}":                  "flags.plugin.deviceListStrategy is neither",
		"flags: {plugin: {deviceIDStrategy: index}}":                `flags.plugin.deviceIDStrategy is "index"`,
		"resources: {gpus: [{pattern: '*', name: nvidia.com/a}]}":   "resources is not supported",
		"imex: {channelIDs: [0]}":                                   "imex is not supported",
		"sharing: {mps: {resources: [{name: a, replicas: 2}]}}":     "sharing.mps is not supported",
		"sharing: {timeSlicing: {resources: [{name: a}]}}":          "sharing.timeSlicing is not supported",
		"flags: {migStrategie: mixed}":                              `unknown field "migStrategie"`,
		"sharing: {timeSlicing: {replica: 1}}":                      `unknown field "replica"`,
		"flags: {migStrategy: mixed}\nflags: {migStrategy: single}": `key "flags" already set`,
		"- a list": "cannot unmarshal array",

		"kubedevice: {migLayouts: [{instances: [1g.10gb]}]}":              "migLayouts needs flags.migStrategy",
		"kubedevice: {migLayouts: [{instances: []}]}":                     "migLayouts[0].instances has 0 profiles",
		"kubedevice: {migLayouts: [{instances: [1c.3g.40gb]}]}":           `migLayouts[0].instances has "1c.3g.40gb"`,
		"kubedevice: {migLayouts: [{gpus: ['0'], instances: [7g.80gb]}]}": `migLayouts[0].gpus has "0"`,
		"kubedevice: {migLayouts: [{}, {gpus: [GPU-a]}]}":                 "migLayouts[0] has no gpus",
		"kubedevice: {migLayouts: [{gpus: [GPU-a, GPU-a]}]}":              "an earlier layout has",
	} {
		if _, err := Parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
}

func TestAFileThatIsNotThereIsTheDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nvidia.yaml")
	if got, err := Read(file); err != nil || !cmp.Equal(Default(), got) {
		t.Errorf("no file: %+v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("version: v3"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil || !strings.HasPrefix(err.Error(), file+": ") {
		t.Errorf("a file of version 3: %v", err)
	}
}

func TestStrategiesAreNamedByTheWordsOfTheFile(t *testing.T) {
	for content, want := range map[string]string{
		"": "migStrategy none, deviceListStrategy envvar, passDeviceSpecs false, 0 migLayouts",
		"flags: {migStrategy: mixed, plugin: {deviceListStrategy: [volume-mounts, cdi-cri], passDeviceSpecs: true}}\n" +
			"kubedevice: {migLayouts: [{instances: [7g.80gb]}]}": "migStrategy mixed, deviceListStrategy cdi-cri and " +
			"volume-mounts, passDeviceSpecs true, 1 migLayouts",
	} {
		config, err := Parse([]byte(content))
		if got := config.String(); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", content, got, err, want)
		}
	}
	if got, want := Default().String(), "migStrategy mixed, deviceListStrategy envvar"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzAnyFileIsReadOrRefused(f *testing.F) {
	f.Add("version: v1\nflags: {migStrategy: mixed, plugin: {deviceListStrategy: [envvar]}}")
	f.Add("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}")
	f.Add("flags: {plugin: {deviceListStrategy: cdi-cri}}")
	f.Add("flags: {plugin: null, gfd: {}}\nimex: {required: true}")
	f.Fuzz(func(t *testing.T, content string) {
		config, err := Parse([]byte(content))
		if err == nil && (!config.EnvVar && !config.VolumeMounts && !config.CDI || config.MIG == "") {
			t.Errorf("%q is %+v", content, config)
		}
	})
}

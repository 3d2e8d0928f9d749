// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	kubedeviceconfig "github.com/kubedevice/kubedevice/pkg/scheduler/config"
)

// The profiles for questions are those that upstream's command reads, whichever way it reads them.
func TestTheConfiguredProfilesAreThoseThatWereRead(t *testing.T) {
	enableByDefault(&kubedeviceconfig.Flags{})
	for name, read := range map[string]func() (any, error){
		"without a configuration": func() (any, error) { return latest.Default() },
		"a file": func() (any, error) {
			object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: mine
  plugins: {multiPoint: {disabled: [{name: ImageLocality}]}}
  pluginConfig:
  - {name: NodeResourcesFit, args: {ignoredResources: [vendor.example/x]}}
  - {name: KubeDevice, args: {quota: warn}}
`), nil, nil)
			return object, err
		},
	} {
		used, err := read()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := configured{}.Profiles()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(used.(*config.KubeSchedulerConfiguration).Profiles, got); diff != "" || len(got) == 0 {
			t.Errorf("%s (-used +for questions):\n%s", name, diff)
		}
	}
}

// Upstream's plugin that counts leaves what is compiled to requests for devices to ours, in
// addition to what a profile says, and in no profile without our plugin.
func TestNodeResourcesFitLeavesPartsOfGPUsToThePlugin(t *testing.T) {
	enableByDefault(&kubedeviceconfig.Flags{})
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - {name: NodeResourcesFit, args: {ignoredResources: [vendor.example/x]}}
- schedulerName: kai-scheduler
- schedulerName: without
  plugins: {multiPoint: {disabled: [{name: KubeDevice}]}}
`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, profile := range object.(*config.KubeSchedulerConfiguration).Profiles {
		for _, plugin := range profile.PluginConfig {
			if args, ok := plugin.Args.(*config.NodeResourcesFitArgs); ok {
				got[profile.SchedulerName] = args.IgnoredResources
			}
		}
	}
	parts := []string{
		"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority",
	}
	own := append([]string{"vendor.example/x"}, parts...)
	want := map[string][]string{
		"default-scheduler": own, "kubedevice-scheduler": own, "kai-scheduler": parts, "without": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources that are left out (-want +got):\n%s", diff)
	}
}

// Where the arguments say so, our plugin for claims is where upstream's would be, with its weight,
// and what a profile says of upstream's plugin holds for ours.
func TestThePluginForClaimsTakesThePlaceOfUpstreams(t *testing.T) {
	enableByDefault(&kubedeviceconfig.Flags{})
	read := func(text string) map[string]*config.Plugins {
		t.Helper()
		object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(
			"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]*config.Plugins{}
		for _, profile := range object.(*config.KubeSchedulerConfiguration).Profiles {
			all[profile.SchedulerName] = profile.Plugins
		}
		return all
	}
	before := read("profiles: [{schedulerName: a}]")["a"]
	renamed := before.DeepCopy()
	at := slices.IndexFunc(renamed.MultiPoint.Enabled, func(p config.Plugin) bool {
		return p.Name == "DynamicResources"
	})
	renamed.MultiPoint.Enabled[at].Name = "KubeDeviceClaims"
	ours := "pluginConfig: [{name: KubeDevice, args: {claims: kubedevice}}]"
	after := read(`
profiles:
- schedulerName: a
  ` + ours + `
- schedulerName: score
  plugins: {score: {disabled: [{name: DynamicResources}]}}
- schedulerName: neither
  plugins: {multiPoint: {disabled: [{name: DynamicResources}]}}
- schedulerName: again
  plugins: {multiPoint: {enabled: [{name: KubeDeviceClaims, weight: 2}]}}
- schedulerName: without
  plugins: {multiPoint: {disabled: [{name: KubeDevice}]}}
`)
	for name, want := range map[string]func(*config.Plugins){
		"a":     func(*config.Plugins) {},
		"again": func(*config.Plugins) {},
		"score": func(p *config.Plugins) { p.Score.Disabled = []config.Plugin{{Name: "KubeDeviceClaims"}} },
		"neither": func(p *config.Plugins) {
			p.MultiPoint.Enabled = slices.Delete(p.MultiPoint.Enabled, at, at+1)
			p.MultiPoint.Disabled = []config.Plugin{{Name: "DynamicResources"}}
		},
	} {
		wanted := renamed.DeepCopy()
		want(wanted)
		if diff := cmp.Diff(wanted, after[name], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("profile %s (-want +got):\n%s", name, diff)
		}
	}
	if slices.ContainsFunc(after["without"].MultiPoint.Enabled, func(p config.Plugin) bool {
		return p.Name == "KubeDeviceClaims"
	}) {
		t.Error("a profile without our plugin has that for claims")
	}
}

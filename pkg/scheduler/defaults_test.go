// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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

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

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func TestPodRequiresKubecriInAdditionToItsOwnPlugins(t *testing.T) {
	const bare, pod, main = "required-plugins.noderesource.dev", "required-plugins.noderesource.dev/pod",
		"required-plugins.noderesource.dev/container.main"
	const side = "required-plugins.noderesource.dev/container.side"
	const ours = `["kubedevice"]`
	for name, test := range map[string]struct{ pod, want map[string]string }{
		"nothing": {nil, map[string]string{pod: ours, main: ours}},
		"the pod a plugin of its own": {
			map[string]string{pod: "[other]"},
			map[string]string{pod: `["other","kubedevice"]`, main: `["other","kubedevice"]`},
		},
		"the shortest key": {
			map[string]string{bare: "- other\n- more"},
			map[string]string{pod: `["other","more","kubedevice"]`, main: `["other","more","kubedevice"]`},
		},
		"the container none": {
			map[string]string{pod: "[other]", main: "[]"},
			map[string]string{pod: `["other","kubedevice"]`, main: ours},
		},
		"kubecri": {
			map[string]string{pod: "[kubedevice, other]"},
			map[string]string{pod: "[kubedevice, other]", main: "[kubedevice, other]"},
		},
		"what cannot be read": {map[string]string{main: "{"}, map[string]string{pod: ours}},
		"another container has a plugin": {
			map[string]string{side: "[other]"}, map[string]string{pod: ours, main: ours},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.pod)
			if got := deviceinfo.RequirePlugin(test.pod, []string{"main"}); !maps.Equal(got, test.want) {
				t.Errorf("adds %q, want %q", got, test.want)
			}
			if !maps.Equal(test.pod, before) {
				t.Errorf("changed the pod's annotations to %q", test.pod)
			}
		})
	}
}

// A key's name has at most 63 bytes. So no list can override the pod's list for such a container.
func TestContainerWithALongNameUsesThePodsList(t *testing.T) {
	got := deviceinfo.RequirePlugin(nil, []string{strings.Repeat("n", 54), strings.Repeat("n", 53)})
	if len(got) != 2 || got["required-plugins.noderesource.dev/container."+strings.Repeat("n", 53)] == "" {
		t.Errorf("adds %q, want the pod's list and that of the shorter name", got)
	}
}

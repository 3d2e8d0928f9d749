// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestVariablesByWhichAscendsRuntimeOpensTheNodeAreRefused(t *testing.T) {
	guard := node{own: []types.ResourceName{"huawei.com/Ascend910"}}.guard(t)
	for variable, want := range map[string]bool{
		"MOUNT_BY_RUNTIME_FOR_DP=":           true,
		"host_snapshot_path=/var/lib/x":      true,
		"host_snapshot_path=":                true,
		"GRUS_SNAPSHOT_IMAGE_PATH=/x":        true,
		"ASCEND_RUNTIME_MOUNTS=../../tmp/x":  true,
		"ASCEND_RUNTIME_MOUNTS=base, /x":     true,
		"ASCEND_RUNTIME_MOUNTS=base,hostlog": false,
		"ASCEND_RUNTIME_MOUNTS=":             false,
		"ASCEND_RUNTIME_OPTIONS=NODRV":       false,
		"POD_NAME=a-0":                       false,
	} {
		for _, c := range []Container{
			{Config: configOf([]string{variable})},
			{Config: configOf(nil), Image: envs(variable)},
			{Config: configOf([]string{variable}), Adjusted: true},
		} {
			for _, allocated := range []string{"", "ASCEND_VISIBLE_DEVICES=7"} {
				o := guard.Neutralise(c, envs(strings.Fields(allocated)...), allocated != "")
				if refused := len(o.Refused) > 0; refused != want {
					t.Errorf("%s, given %q: refused %t (%v), want %t", variable, allocated, refused, o.Refused, want)
				}
				for _, set := range pairs(o.Set) {
					if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(set, name+"=") {
						t.Errorf("%s is overridden by %s", variable, set)
					}
				}
			}
		}
		existing := Container{Config: configOf([]string{variable})}
		if taken := len(guard.Taken(existing)) > 0; taken != want {
			t.Errorf("%s in a container that runs: an attempt %t, want %t", variable, taken, want)
		}
	}
}

func TestOnlyAPluginMakesTheDevicesOfAContainerOfAscendsOtherOnes(t *testing.T) {
	guard := node{own: []types.ResourceName{"huawei.com/Ascend910"}}.guard(t)
	for _, test := range []struct {
		image, pod, given string
		proxy, nri        bool // whether it is refused
	}{
		{"", "ASCEND_RUNTIME_OPTIONS=VIRTUAL", "", true, true},
		{"ASCEND_RUNTIME_OPTIONS=NODRV,VIRTUAL", "", "", true, true},
		{"ASCEND_RUNTIME_OPTIONS=VIRTUAL", "ASCEND_RUNTIME_OPTIONS=NODRV", "", true, false},
		{"", "ASCEND_RUNTIME_OPTIONS=NODRV", "", false, false},
		{"", "ASCEND_RUNTIME_OPTIONS=NODRV", "ASCEND_RUNTIME_OPTIONS=", false, false},
		{"", "ASCEND_RUNTIME_OPTIONS=VIRTUAL", "ASCEND_RUNTIME_OPTIONS=", true, false},
		{"", "", "ASCEND_RUNTIME_OPTIONS=VIRTUAL", false, false},
		{"", "ASCEND_RUNTIME_OPTIONS=VIRTUAL", "ASCEND_RUNTIME_OPTIONS=VIRTUAL", false, false},
		// The number of a virtual device would be that of a physical one.
		{"", "ASCEND_RUNTIME_OPTIONS=NODRV", "ASCEND_RUNTIME_OPTIONS=VIRTUAL", true, false},
		{"", "ASCEND_ALLOW_LINK=True", "", true, true},
		{"", "ASCEND_ALLOW_LINK=False", "", false, false},
		{"", "", "ASCEND_ALLOW_LINK=True", false, false},
	} {
		image, pod := strings.Fields(test.image), strings.Fields(test.pod)
		allocated := envs(append([]string{"ASCEND_VISIBLE_DEVICES=7"}, strings.Fields(test.given)...)...)
		for _, byNRI := range []bool{false, true} {
			c := containerOf(image, pod, byNRI)
			want := test.proxy
			if byNRI {
				want = test.nri
			}
			if o := guard.Neutralise(c, allocated, true); (len(o.Refused) > 0) != want {
				t.Errorf("%+v, by NRI %t: refused for %v, want %t", test, byNRI, o.Refused, want)
			}
			// Without a device it does nothing.
			if o := guard.Neutralise(c, nil, false); len(o.Refused) > 0 {
				t.Errorf("%+v without a device, by NRI %t: refused for %v", test, byNRI, o.Refused)
			}
		}
	}
}

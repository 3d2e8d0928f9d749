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
			for _, given := range []string{"", "ASCEND_VISIBLE_DEVICES=7"} {
				o := guard.Neutralise(c, envs(strings.Fields(given)...), given != "")
				if refused := len(o.Refused) > 0; refused != want {
					t.Errorf("%s, given %q: refused %t (%v), want %t", variable, given, refused, o.Refused, want)
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

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// containerd keeps each entry of a request of the CRI, and AMD's runtime reserves the GPUs of each.
func TestNoVariableReservesDevicesForAContainerThatDoesNotGetThem(t *testing.T) {
	guard := node{own: []types.ResourceName{"amd.com/gpu"}}.guard(t)
	for name, test := range map[string]struct {
		image, pod, given []string
		refused           bool // by the proxy; NRI replaces each
	}{
		"a variable of the image": {image: []string{"AMD_VISIBLE_DEVICES=all"}, refused: true},
		"a variable of the pod":   {pod: []string{"AMD_VISIBLE_DEVICES=0"}, refused: true},
		"one that begins so":      {pod: []string{"DOCKER_RESOURCE_A=0"}, refused: true},
		"two that begin so":       {pod: []string{"DOCKER_RESOURCE_A=0", "DOCKER_RESOURCE_B=1"}, refused: true},
		"one next to an allocation": {
			image: []string{"AMD_VISIBLE_DEVICES=1"}, given: []string{"AMD_VISIBLE_DEVICES=7"}, refused: true,
		},
		"one that requests nothing": {
			image: []string{"AMD_VISIBLE_DEVICES=none"}, pod: []string{"DOCKER_RESOURCE_A="},
			given: []string{"AMD_VISIBLE_DEVICES=7"},
		},
	} {
		for _, byNRI := range []bool{false, true} {
			want := test.refused && !byNRI
			o := guard.Neutralise(containerOf(test.image, test.pod, byNRI), envs(test.given...), test.given != nil)
			if refused := len(o.Refused) > 0; refused != want {
				t.Errorf("%s, by NRI %t: refused %t (%v), want %t", name, byNRI, refused, o.Refused, want)
			}
			if started, problem := start(guard, amdModel, test.image, test.pod, test.given, byNRI); problem != "" {
				t.Errorf("%s, by NRI %t, started %t: %s", name, byNRI, started, problem)
			}
		}
	}
}

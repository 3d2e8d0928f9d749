// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The kubelet may have forgotten what a plugin gave a container that runs: that exempts the
// container from the rules of the plugin's vendor alone.
func TestAResourceOfTheKubeletExemptsAContainerFromItsOwnVendorsRules(t *testing.T) {
	for name, test := range map[string]struct {
		requests types.ResourceName
		gifts    []firewall.Gift
		variable string
		ended    bool
	}{
		"another vendor's resource does not": {
			requests: "other.com/nic", variable: "NVIDIA_VISIBLE_DEVICES=all", ended: true,
		},
		"nor does it where the rule is a plugin's": {
			requests: "other.com/nic", variable: "VISIBLE_CARDS=all", ended: true,
		},
		"the vendor's does": {requests: "nvidia.com/hostdev", variable: "NVIDIA_VISIBLE_DEVICES=all"},
		"one that no plugin of the vendor serves does not": {
			requests: "nvidia.com/bogus", variable: "NVIDIA_VISIBLE_DEVICES=all", ended: true,
		},
		"not while the kubelet remembers": {
			requests: "nvidia.com/hostdev", variable: "NVIDIA_VISIBLE_DEVICES=all", ended: true,
			gifts: []firewall.Gift{{Resource: "nvidia.com/hostdev"}},
		},
		"one of the domain of a plugin's resources does": {
			requests: "example.com/other", variable: "VISIBLE_CARDS=all",
		},
	} {
		f := fixtureWith(t, &visibleCards{})
		f.Firewall, f.files, f.gifts = f.wall, map[string]bool{"/dev/nvidiactl": true}, test.gifts
		f.served = []types.ResourceName{"nvidia.com/hostdev", "example.com/other", "other.com/nic"}
		f.pods["u"], f.live["u"] = podThatRequests(test.requests), true
		variable, value, _ := strings.Cut(test.variable, "=")
		reason, err := f.Inspect(t.Context(), Container{
			Pod: Pod{
				UID: "u", Namespace: "default", Name: "pod-u",
				Annotations: map[string]string{sourceAnnotation: sourceAPI},
			},
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
				Envs:     []*runtimeapi.KeyValue{{Key: variable, Value: []byte(value)}},
			},
			WithImage: true,
		})
		if err != nil || (reason != "") != test.ended || test.ended && !strings.Contains(reason, test.variable) {
			t.Errorf("%s: ended for %q (%v), want %t", name, reason, err, test.ended)
		}
	}
}

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

// A container that requests a resource of the kubelet's keeps what the plugin gave it, as far as
// the kubelet remembers that.
func TestAResourceOfTheKubeletExemptsAContainerThatRunsForWhatThePluginGave(t *testing.T) {
	for name, test := range map[string]struct {
		requests   types.ResourceName
		injections []firewall.KubeletInjection
		variable   string
		ended      bool
	}{
		"another vendor's resource does not": {
			requests: "other.com/nic", variable: "NVIDIA_VISIBLE_DEVICES=all", ended: true,
		},
		"nor does it where the rule is a plugin's": {
			requests: "other.com/nic", variable: "VISIBLE_CARDS=all", ended: true,
		},
		"nor one of the vendor of which the kubelet remembers nothing": {
			requests: "nvidia.com/hostdev", variable: "NVIDIA_VISIBLE_DEVICES=all", ended: true,
		},
		"nor one of the domain of a plugin's resources": {
			requests: "example.com/other", variable: "VISIBLE_CARDS=all", ended: true,
		},
		"nor one whose plugin gave no variable": {
			requests: "nvidia.com/hostdev", variable: "NVIDIA_VISIBLE_DEVICES=all", ended: true,
			injections: []firewall.KubeletInjection{{Resource: "nvidia.com/hostdev"}},
		},
		"nor one whose plugin gave another value": {
			requests: "nvidia.com/hostdev", variable: "NVIDIA_VISIBLE_DEVICES=all", ended: true,
			injections: []firewall.KubeletInjection{{
				Resource: "nvidia.com/hostdev", Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
			}},
		},
		"one whose plugin gave that value does": {
			requests: "nvidia.com/hostdev", variable: "NVIDIA_VISIBLE_DEVICES=GPU-1",
			injections: []firewall.KubeletInjection{{
				Resource: "nvidia.com/hostdev", Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
			}},
		},
	} {
		f := fixtureWith(t, &visibleCards{})
		f.Firewall, f.files, f.injections = f.wall, map[string]bool{"/dev/nvidiactl": true}, test.injections
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

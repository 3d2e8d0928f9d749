// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// visibleCards are cards that an image could take by itself.
type visibleCards struct{ cards }

var _ device.Isolator = (*visibleCards)(nil)

func (v *visibleCards) DenyEnvs() map[string]string {
	return map[string]string{"VISIBLE_CARDS": "void"}
}

func (v *visibleCards) Allocate(
	_ *types.PodInfo,
	_ *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, map[string]string{"VISIBLE_CARDS": "0"}, nil
}

// greedyWidgets deny under the same name as visibleCards, and under one of their own.
type greedyWidgets struct{ widgets }

func (g *greedyWidgets) DenyEnvs() map[string]string {
	return map[string]string{"VISIBLE_CARDS": "none", "VISIBLE_WIDGETS": ""}
}

func TestWhoIsIsolated(t *testing.T) {
	all := map[string]string{"VISIBLE_CARDS": "void", "VISIBLE_WIDGETS": ""}
	for name, test := range map[string]struct {
		off        bool // --isolate
		source     string
		known      pods.Pod
		container  string
		privileged bool
		given      []types.ResourceName // to main
		want       map[string]string
		outcome    Outcome
	}{
		"a pod without devices":                  {known: plain, want: all, outcome: Isolated},
		"also one that requests somebody else's": {known: other, want: all, outcome: Isolated},
		"an init container": {
			known: plain, container: "first", want: all, outcome: Isolated,
		},
		"a debug container": {
			known: plain, container: "debugger-x7k2p", want: all, outcome: Isolated,
		},
		"a container beside one that has devices": {
			known: requesting, container: "side", given: []types.ResourceName{card0}, want: all, outcome: Isolated,
		},
		"a container with a card, from widgets": {
			known: requesting, given: []types.ResourceName{card0},
			want: map[string]string{"VISIBLE_CARDS": "0", "VISIBLE_WIDGETS": ""}, outcome: Injected,
		},
		"a container with a widget, from cards": {
			known: plain, given: []types.ResourceName{widget0}, want: map[string]string{"VISIBLE_CARDS": "void"},
			outcome: Injected,
		},
		"not one with both": {
			known: both, given: []types.ResourceName{card0, widget0}, want: map[string]string{"VISIBLE_CARDS": "0"},
			outcome: Injected,
		},
		"not a privileged one, which sees them all": {known: plain, privileged: true, outcome: Passed},
		"not a static pod, which root wrote":        {source: "file", outcome: Passed},
		"not anybody unless it is asked for":        {off: true, known: plain, outcome: Passed},
		"nor then one with a card, beyond what it needs": {
			off: true, known: requesting, given: []types.ResourceName{card0},
			want: map[string]string{"VISIBLE_CARDS": "0"}, outcome: Injected,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &visibleCards{}, &greedyWidgets{})
			f.Isolate = !test.off
			f.pods["u"] = test.known
			source, container := test.source, test.container
			if source == "" {
				source = "api"
			}
			if container == "" {
				container = "main"
			}
			var annotations map[string]string
			if test.given != nil {
				annotations = allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": test.given})
			}
			config, err := f.createAs(t, "u", source, annotations, &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: container},
				Envs:     []*runtimeapi.KeyValue{{Key: "VISIBLE_CARDS", Value: []byte("all")}},
				Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					Privileged: test.privileged,
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			for i, env := range config.GetEnvs() {
				if i == 0 { // the pod's own; what stands later wins
					got = map[string]string{}
					continue
				}
				got[env.GetKey()] = string(env.GetValue())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]Outcome{test.outcome}, f.outcomes); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodySlipsThroughWhilePluginsAreLoaded(t *testing.T) {
	loading := make(chan struct{})
	f := newFixtureOf(t, plugins.Load(func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		<-loading
		return []pluginload.Loaded[device.Device]{{Name: "cards", Plugin: &visibleCards{}}}, nil
	}))
	f.pods["u"] = plain
	raw := createRequest(t, "u", "api", nil, &runtimeapi.ContainerConfig{})
	impatient, cancel := context.WithCancel(context.Background())
	cancel()

	if suffix, err := f.CreateContainer(impatient, raw); err != nil || len(suffix) > 0 {
		t.Errorf("without --isolate: %q, %v", suffix, err)
	}
	f.Isolate = true
	if _, err := f.CreateContainer(impatient, raw); status.Code(err) != codes.Unavailable {
		t.Errorf("with --isolate: %v, want Unavailable", err)
	}
	if len(f.warnings) > 0 {
		t.Errorf("the pod, which has nothing to do with devices, got the event %q", f.warnings)
	}
	close(loading)
	if suffix, err := f.CreateContainer(context.Background(), raw); err != nil || len(suffix) == 0 {
		t.Errorf("when they are loaded: %q, %v", suffix, err)
	}
}

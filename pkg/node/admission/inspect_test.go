// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"maps"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestWhichContainersThatRunAreEnded(t *testing.T) {
	asking := map[string]string{"VISIBLE_CARDS": "all"}
	serving := requesting
	serving.Namespace, serving.ServiceAccount = "default", "exporter"
	account := plain
	account.ServiceAccount = "somebody"
	firstRelease := allocation(t, "pod-u", "node-1",
		map[string][]types.ResourceName{"main": {card0}})[deviceinfo.Annotation]
	for name, test := range map[string]struct {
		source     string // api if it is empty
		known      *pods.Pod
		allocated  types.ResourceName
		carried    string
		signed     bool // what it carries, by this node
		given      []types.ResourceName
		givenErr   error
		privileged bool
		envs       map[string]string
		says       string // why it is ended; "" if it is not
		unknown    bool   // it is not known
	}{
		"one that lacks what it was allocated": {
			known: &requesting, allocated: card0, says: "the devices that it was allocated",
		},
		"the same of a pod that nobody knows": {allocated: card0, says: "the devices that it was allocated"},
		"not one that has it":                 {known: &requesting, allocated: card0, signed: true},
		"one that says so and does not": {
			known: &requesting, allocated: card0, carried: "forged", says: "the devices that it was allocated",
		},
		"one that says so and was allocated nothing": {
			known: &account, carried: "forged", envs: asking, says: "VISIBLE_CARDS=all",
		},
		"one that says so as the first release wrote it": {
			known: &account, carried: firstRelease, envs: asking, says: "VISIBLE_CARDS=all",
		},
		"one that requests a device": {known: &requesting, says: "the devices that it requests"},
		"not if the kubelet gave it": {known: &requesting, given: []types.ResourceName{card0}},
		"not while that is not known": {
			known: &requesting, givenErr: errors.New("unreadable"), unknown: true,
		},
		"one that asks past the scheduler":   {known: &account, envs: asking, says: "VISIBLE_CARDS=all"},
		"not one that asks for none":         {known: &account, envs: map[string]string{"VISIBLE_CARDS": "void"}},
		"not one that is let through":        {known: &serving, given: []types.ResourceName{card0}, envs: asking},
		"not a privileged one":               {known: &account, envs: asking, privileged: true},
		"nor one that the kubelet may serve": {known: &other, envs: asking},
		"not a static one":                   {source: "file", envs: asking, allocated: card0},
		"not a new one, for now":             {envs: asking, unknown: true},
		"not one that is innocent":           {known: &account},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &visibleCards{})
			f.Firewall, f.served = f.wall, other.Requests["main"]
			var err error
			if f.Allowlist, err = firewall.ParseAllowlist([]string{"default/exporter"}); err != nil {
				t.Fatal(err)
			}
			f.Adopted = adoptedDevices(func(string, string) ([]types.ResourceName, error) {
				return test.given, test.givenErr
			})
			if test.known != nil {
				f.pods["u"] = *test.known
			}
			f.live["u"] = true
			source := test.source
			if source == "" {
				source = "api"
			}
			annotations := map[string]string{}
			if test.allocated != "" {
				annotations = allocation(t, "pod-u", "node-1",
					map[string][]types.ResourceName{"main": {test.allocated}})
			}
			annotations[sourceAnnotation] = source
			config := &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
				Linux: &runtimeapi.LinuxContainerConfig{
					SecurityContext: &runtimeapi.LinuxContainerSecurityContext{Privileged: test.privileged},
				},
			}
			for key, value := range test.envs {
				config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(value)})
			}
			signed := f.signed(t)
			if test.carried != "" {
				config.Annotations = map[string]string{grants.Annotation: test.carried}
			}
			if test.signed {
				config.Annotations = map[string]string{grants.Annotation: signed}
			}
			reason, err := f.Inspect(t.Context(), Container{
				Pod:    Pod{UID: "u", Namespace: "default", Name: "pod-u", Annotations: annotations},
				Config: config,
			})
			if (err != nil) != test.unknown || (reason == "") != (test.says == "") ||
				!strings.Contains(reason, test.says) {
				t.Errorf("got %q, %v", reason, err)
			}
		})
	}
}

// signed returns what the container main of pod u carries where this node gave it the first card.
func (f *fixture) signed(t *testing.T) string {
	t.Helper()
	if _, _, err := f.Grants.Granted(t.Context(), "u"); err != nil { // which reads the key
		t.Fatal(err)
	}
	value, err := f.Grants.Carry(grants.Allocation{PodUID: "u", Namespace: "default", Name: "pod-u",
		PodInfo: &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": given(card0)}}}, "main")
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// The kubelet calls a placeholder for one whose devices it has forgotten.
func TestTheContainersOfAnAdoptedPodAreNotEndedUnlessTheyLackItsDevices(t *testing.T) {
	f := fixtureWith(t, &visibleCards{})
	f.pods["u"], f.live["u"] = requesting, true
	f.adopt()
	forged := maps.Clone(placeholderContainer().Annotations)
	forged[grants.Annotation] = "forged"
	for name, test := range map[string]struct {
		annotations map[string]string
		says        string // why it is ended; "" if it is not
	}{
		"one that the kubelet gave them":  {},
		"one that lacks them":             {placeholderContainer().Annotations, "the devices that its pod holds"},
		"one that lacks them, and forged": {forged, "the devices that its pod holds"},
		"one that kubecri gave them again": {
			annotations: map[string]string{grants.Annotation: f.signed(t)},
		},
	} {
		reason, err := f.Inspect(t.Context(), Container{
			Pod: Pod{
				UID: "u", Namespace: "default", Name: "pod-u",
				Annotations: map[string]string{sourceAnnotation: sourceAPI},
			},
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Annotations: test.annotations,
			},
		})
		if err != nil || (reason == "") != (test.says == "") || !strings.Contains(reason, test.says) {
			t.Errorf("%s: got %q, %v", name, reason, err)
		}
	}
}

// The kubelet gave devices to others of the pod's containers.
func TestAContainerOfAnAdoptedPodIsEndedForDevicesThatItWasNotAllocated(t *testing.T) {
	f := fixtureWith(t, &visibleCards{})
	f.Firewall = f.wall
	f.pods["u"], f.live["u"] = requesting, true
	f.adopt()
	for container, ended := range map[string]bool{"main": false, "log": true, "debugger-x": true} {
		reason, err := f.Inspect(t.Context(), Container{
			Pod: Pod{
				UID: "u", Namespace: "default", Name: "pod-u",
				Annotations: map[string]string{sourceAnnotation: sourceAPI},
			},
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: container},
				Envs:     []*runtimeapi.KeyValue{{Key: "VISIBLE_CARDS", Value: []byte("all")}},
			},
		})
		if err != nil || (reason != "") != ended {
			t.Errorf("%s: ended for %q (%v), want %t", container, reason, err, ended)
		}
	}
}

// What a plugin does to a device for a container that is about to start would disturb another.
func TestPluginsAreNotCalledAheadForDevicesThatContainersShare(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"], f.live["u"] = requesting, true
	<-f.Devices.Synced()
	value, err := deviceinfo.EncodePod(&types.PodInfo{
		Name: "pod-u", NodeName: "node-1",
		InitContainers:    map[string]types.ContainerInfo{"first": given(card0)},
		RunningContainers: map[string]types.ContainerInfo{"main": given(card0), "log": given(card1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{sourceAnnotation: sourceAPI, deviceinfo.Annotation: value}
	pod := Pod{UID: "u", Namespace: "default", Name: "pod-u", Annotations: annotations}
	for range 2 { // the second finds what the first has granted
		claims, err := f.Claims(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		if len(claims) != 1 || claims[0].ContainerName != "log" || claims[0].PodUID != "u" {
			t.Errorf("claims %v", claims)
		}
	}
	if granted := f.Grants.Has("u"); !granted {
		t.Error("the pod was granted nothing")
	}
	static := pod
	static.Annotations = map[string]string{sourceAnnotation: "file"}
	if claims, err := f.Claims(t.Context(), static); err != nil || len(claims) > 0 {
		t.Errorf("a static pod: %v, %v", claims, err)
	}
}

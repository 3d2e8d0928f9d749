// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestRunningContainersWithForbiddenOrMissingDevicesAreEnded(t *testing.T) {
	asking := map[string]string{"VISIBLE_CARDS": "all"}
	serving := requesting
	serving.Namespace, serving.ServiceAccount = "default", "exporter"
	account, atKubelet := plain, other
	account.ServiceAccount, atKubelet.ServiceAccount = "somebody", "somebody"
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
		"one that asks past the scheduler": {known: &account, envs: asking, says: "VISIBLE_CARDS=all"},
		"not one that requests none":       {known: &account, envs: map[string]string{"VISIBLE_CARDS": "void"}},
		"not one that is let through":      {known: &serving, given: []types.ResourceName{card0}, envs: asking},
		"not a privileged one":             {known: &account, envs: asking, privileged: true},
		"one that the kubelet serves, with what its plugin did not give": {
			known: &atKubelet, envs: asking, says: "VISIBLE_CARDS=all",
		},
		"not a static one":         {source: "file", envs: asking, allocated: card0},
		"not a new one, for now":   {envs: asking, unknown: true},
		"not one that is innocent": {known: &account},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &visibleCards{})
			f.Firewall = f.wall
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
	value, err := f.Grants.EncodePart(grants.Allocation{PodUID: "u", Namespace: "default", Name: "pod-u",
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

// otherFile is a checkpoint with other contents in its file.
type otherFile struct {
	Grants
	recorded *grants.Allocation // of each pod, nil if the file lacks it
	lost     error              // why the file is not known
	waited   bool               // for more than the file
}

// Recorded implements Grants.
func (r *otherFile) Recorded(string) (grants.Allocation, bool, error) {
	if r.recorded == nil {
		return grants.Allocation{}, false, r.lost
	}
	return *r.recorded, true, r.lost
}

// Granted implements Grants.
func (r *otherFile) Granted(ctx context.Context, podUID string) (grants.Allocation, bool, error) {
	r.waited = true
	return r.Grants.Granted(ctx, podUID)
}

// Others wait until all containers are inspected, of which there may be many.
func TestThePodsOwnDevicesAreWaitedForWhereTheFileMayLackThem(t *testing.T) {
	const held, requested = "the devices that its pod holds", "the devices that it requests"
	unreadable := errors.New("unreadable")
	for name, test := range map[string]struct {
		recorded, given bool
		lost, unknown   error // why the file, or what the kubelet gave, is not known
		waits           bool
		says            string
	}{
		"not if the file has it":                     {recorded: true, says: held},
		"not if the file alone has it":               {recorded: true, unknown: unreadable, says: held},
		"not if the kubelet gave it nothing, either": {says: requested},
		"if the kubelet gave it devices":             {given: true, waits: true, says: held},
		"if what the kubelet gave it is not known":   {unknown: unreadable, waits: true, says: held},
		"if the file was lost":                       {lost: unreadable, waits: true, says: held},
		"if the file was lost in part":               {recorded: true, lost: unreadable, waits: true, says: held},
		"if the file alone was lost":                 {given: true, lost: unreadable, waits: true, says: held},
		"if neither is known":                        {lost: unreadable, unknown: unreadable, waits: true, says: held},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &visibleCards{})
			f.pods["u"], f.live["u"] = requesting, true
			f.adopt()
			file := &otherFile{Grants: f.Grants, lost: test.lost}
			if test.recorded {
				file.recorded = &f.adopted[0]
			}
			f.Grants = file
			f.Adopted = adoptedDevices(func(string, string) (given []types.ResourceName, err error) {
				if test.given {
					given = append(given, card0)
				}
				return given, test.unknown
			})
			reason, err := f.Inspect(t.Context(), Container{
				Pod: Pod{
					UID: "u", Namespace: "default", Name: "pod-u",
					Annotations: map[string]string{sourceAnnotation: sourceAPI},
				},
				Config: &runtimeapi.ContainerConfig{
					Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
					Annotations: placeholderContainer().Annotations,
				},
			})
			if err != nil || !strings.Contains(reason, test.says) || file.waited != test.waits {
				t.Errorf("waited: %t; ended for %q, %v", file.waited, reason, err)
			}
		})
	}
}

// The kubelet gave a GPU to one of the pod's containers, before kubecri took them over.
func TestAContainerOfAnAdoptedPodIsEndedForDevicesThatItWasNotAllocated(t *testing.T) {
	f := fixtureWith(t, &gpus{})
	f.adoptGPU()
	f.live["u"] = true
	taken := time.Now()
	f.adopted[0].Since = taken
	for name, test := range map[string]struct {
		container, value string
		created          time.Time
		ended            bool
	}{
		"a container without a GPU":                {container: "log", value: "all", ended: true},
		"a debug container":                        {container: "debugger-x", value: "all", ended: true},
		"one that has what the kubelet gave it":    {container: "main", value: "GPU-7", created: taken.Add(time.Hour)},
		"one that has more":                        {"main", "all", taken.Add(time.Hour), true},
		"one that has more, created at some time":  {"main", "all", time.Time{}, true},
		"one that had more when it was taken over": {container: "main", value: "all", created: taken.Add(-time.Hour)},
	} {
		reason, err := f.Inspect(t.Context(), Container{
			Pod: Pod{
				UID: "u", Namespace: "default", Name: "pod-u",
				Annotations: map[string]string{sourceAnnotation: sourceAPI},
			},
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: test.container},
				Envs:     []*runtimeapi.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte(test.value)}},
			},
			WithImage: true, Created: test.created,
		})
		if err != nil || (reason != "") != test.ended {
			t.Errorf("%s: ended for %q (%v), want %t", name, reason, err, test.ended)
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

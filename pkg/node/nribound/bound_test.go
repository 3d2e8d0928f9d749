// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nribound

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContentsAreTheEncodedSizeOfThoseParts(t *testing.T) {
	c := &api.Container{
		Env:         []string{"A=" + strings.Repeat("b", 200), "", "PATH=/bin"},
		Args:        []string{"sh", strings.Repeat("c", 70_000)},
		Labels:      map[string]string{"l": strings.Repeat("v", 300), "m": "w"},
		Annotations: map[string]string{"key": strings.Repeat("v", 20_000)},
		Mounts: []*api.Mount{
			{Destination: "/etc/a", Source: "/b", Type: "bind", Options: []string{"rbind", "ro"}},
			{Destination: "/proc"},
		},
		CDIDevices: []*api.CDIDevice{{Name: "vendor.com/gpu=0"}},
	}
	if got, want := ContainerContents(c).Total(), proto.Size(c); got != want {
		t.Errorf("a container has %d bytes, want %d", got, want)
	}
	s := &api.PodSandbox{Labels: c.GetLabels(), Annotations: c.GetAnnotations()}
	if got, want := SandboxContents(s).Total(), proto.Size(s); got != want {
		t.Errorf("a sandbox has %d bytes, want %d", got, want)
	}
}

func TestErrorsOfLargeObjectsNameTheirParts(t *testing.T) {
	pod := Pod{"default", "p"}
	x := strings.Repeat("x", MaxContents)
	large := ContainerContents(&api.Container{Env: []string{x}, Args: []string{"sh"}})
	labelled := SandboxContents(&api.PodSandbox{Labels: map[string]string{"a": x}})
	short, keys := slices.Repeat([]string{""}, MaxStrings+1), map[string]string{}
	for i := range MaxStrings/2 + 1 {
		keys[fmt.Sprint(i)] = ""
	}
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"container": {
			CheckContainer(pod, "main", large),
			[]string{`"main"`, "default/p", "327688", "327680", "variables 327684", "volumes"},
		},
		"sandbox": {
			CheckSandbox(pod, labelled), []string{"default/p", "labels 327", "327680"},
		},
		"answer": {
			CheckChanged(pod, "main", MaxObject-10, &api.ContainerAdjustment{Args: []string{"a longer text"}}),
			[]string{`"main"`, "the 15 bytes", "381278", "381273"},
		},
		"pod": {
			CheckPod(pod, "main", Size{Bytes: MaxPod - 5}, Size{Bytes: 10, Strings: 1}),
			[]string{`"main"`, "its 10 bytes", "524293 bytes in 1 string", "524288"},
		},
		"container of short strings": {
			CheckContainer(pod, "main", ContainerContents(&api.Container{Env: short})),
			[]string{`"main"`, "10001 variables", "10000 are allowed", "volumes"},
		},
		"sandbox of short strings": {
			CheckSandbox(pod, SandboxContents(&api.PodSandbox{Labels: keys})),
			[]string{"default/p", "10002 keys and values", "10000 are allowed"},
		},
		"pod of short strings": {
			CheckPod(pod, "main", Size{Strings: MaxStrings}, Size{Strings: 1}),
			[]string{`"main"`, "take 0 bytes in 10001 strings"},
		},
	} {
		if test.err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(test.err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, test.err, want)
			}
		}
	}
	small := ContainerContents(&api.Container{Env: []string{strings.Repeat("x", MaxContents-4)}})
	for _, err := range []error{
		CheckContainer(pod, "main", small), CheckSandbox(pod, SandboxContents(&api.PodSandbox{})),
		CheckChanged(pod, "main", MaxObject-10, &api.ContainerAdjustment{}),
		CheckPod(pod, "main", Size{MaxPod - 10, MaxStrings - 1}, Size{10, 1}),
	} {
		if err != nil {
			t.Error("within the bound:", err)
		}
	}
}

func TestAContainerOfTheCRIHasTheSizeThatItHasInNRI(t *testing.T) {
	key, value := "NAME", strings.Repeat("v", 3000)
	config := &runtimeapi.ContainerConfig{
		Envs:    []*runtimeapi.KeyValue{{Key: key, Value: []byte(value)}},
		Command: []string{"sh"}, Args: []string{"-c", "x"},
		Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": value},
		Mounts:     []*runtimeapi.Mount{{HostPath: "/var/lib/kubelet/pods/x/etc-hosts", ContainerPath: "/etc/hosts"}},
		CDIDevices: []*runtimeapi.CDIDevice{{Name: "vendor.com/gpu=0"}},
	}
	c := &api.Container{
		Env: []string{key + "=" + value}, Args: []string{"sh", "-c", "x"}, Labels: config.GetLabels(),
		Annotations: config.GetAnnotations(), CDIDevices: []*api.CDIDevice{{Name: "vendor.com/gpu=0"}},
		Mounts: []*api.Mount{{
			Source: "/var/lib/kubelet/pods/x/etc-hosts", Destination: "/etc/hosts", Type: "bind",
			Options: []string{"rbind", "rprivate", "rw"},
		}},
	}
	got, want := CRIContainerContents(config), ContainerContents(c)
	if difference := got.Total() - want.Total(); difference < 0 || difference > 10 {
		t.Errorf("%v by the CRI, %v by NRI", got, want)
	}
	if got.Strings != want.Strings {
		t.Errorf("%d strings by the CRI, %d by NRI", got.Strings, want.Strings)
	}
}

func TestAChangeAddsItsStrings(t *testing.T) {
	change := &api.ContainerAdjustment{
		Env: []*api.KeyValue{{Key: "a", Value: "b"}, {Key: "c"}}, Annotations: map[string]string{"d": "e"},
		Mounts:     []*api.Mount{{Source: "f", Destination: "g", Type: "bind", Options: []string{"ro"}}},
		CDIDevices: []*api.CDIDevice{{Name: "h"}},
	}
	if got, want := AdjustmentSize(change), (Size{change.SizeVT(), 2 + 2 + 4 + 1}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAListMayHaveMoreOfAPodThanWasAdmitted(t *testing.T) {
	for _, admitted := range []Size{{MaxPod, 1}, {1, MaxStrings}} {
		if IsPodTooLarge(admitted.Plus(Size{addedBytes, addedStrings})) {
			t.Errorf("%v is too large with what others add", admitted)
		}
	}
	for _, large := range []Size{{MaxPod + addedBytes + 1, 1}, {1, MaxStrings + addedStrings + 1}} {
		if !IsPodTooLarge(large) {
			t.Errorf("%v is not too large", large)
		}
	}
}

func TestAVariableCountsAsTheRuntimeStoresIt(t *testing.T) {
	for name, value := range map[string]string{
		"text":                  "väl💚",
		"no text":               strings.Repeat("\xff", 1000),
		"text and others":       "a\xffb\xc3",
		"a character of itself": "\uFFFD",
		"nothing":               "",
	} {
		stored, err := json.Marshal("NAME=" + value)
		if err != nil {
			t.Fatal(err)
		}
		var listed string
		if err := json.Unmarshal(stored, &listed); err != nil {
			t.Fatal(err)
		}
		want := ContainerContents(&api.Container{Env: []string{listed}}).Variables
		got := sizeOfVariables([]*runtimeapi.KeyValue{{Key: "NAME", Value: []byte(value)}})
		if got != want {
			t.Errorf("%s: %d bytes, and %d in the list", name, got, want)
		}
	}
}

func TestVolumesOfAnImageAreCountedWithAllThatTheRuntimeMakesOfThem(t *testing.T) {
	var paths []string
	c := &api.Container{}
	id := strings.Repeat("0", 64)
	for i := range 400 {
		path := strings.Repeat("/"+strings.Repeat("v", 250), 14) + fmt.Sprintf("/v%d", i)
		c.Mounts = append(c.Mounts, &api.Mount{
			Source:      "/var/lib/containerd/io.containerd.grpc.v1.cri/containers/" + id + "/volumes/" + id,
			Destination: path, Type: "bind", Options: []string{"rbind", "rprivate", "rw"},
		})
		if i%2 == 0 {
			path = strings.TrimPrefix(path, "/")
		}
		paths = append(paths, path)
	}
	counted, described := VolumesContents(slices.Values(paths)), ContainerContents(c)
	if got, want := counted.Mounts, described.Mounts; got < want || got > want+want/20 {
		t.Errorf("%d bytes are counted, the runtime describes them with %d", got, want)
	}
	if got, want := counted.Strings, described.Strings; got != want {
		t.Errorf("%d strings are counted, want %d", got, want)
	}
	if err := CheckContainer(Pod{"default", "p"}, "main", counted); err == nil ||
		!strings.Contains(err.Error(), "mounts 1") {
		t.Errorf("a container with volumes of 1.4 MiB: %v", err)
	}
	few := VolumesContents(slices.Values([]string{"/var/lib/postgresql/data", "/config"}))
	if err := CheckContainer(Pod{"default", "p"}, "main", few); err != nil {
		t.Error("one with two volumes:", err)
	}
}

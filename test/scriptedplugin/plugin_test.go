// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scriptedplugin

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWordsStandForWhatAScriptMeans(t *testing.T) {
	for line, want := range map[string][]string{
		"":                     nil,
		"  devices  a b ":      {"devices", "a", "b"},
		"node 'a b' ''":        {"node", "a b", ""},
		"<x*3>":                {"xxx"},
		"d<0..3>":              {"d0", "d1", "d2", "d3"},
		"d<08..11>.1":          {"d08.1", "d09.1", "d10.1", "d11.1"},
		"d<0*2><0..1>":         {"d000", "d001"},
		"a<b a>b <*3> <3..2>z": {"a<b", "a>b", "<*3>"},
	} {
		got, err := Words(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{"'a", "<x*99999999>", "<0..99999999>", "<x*99999999999999999999>"} {
		if got, err := Words(line); err == nil {
			t.Errorf("%q: %d words, want an error", line, len(got))
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add("devices a@0,1!Unhealthy '' <x*300> d<00..79>")
	f.Fuzz(func(t *testing.T, line string) {
		words, err := Words(line)
		if err != nil && words != nil {
			t.Errorf("%q: words and an error", line)
		}
	})
}

func TestAPluginListsAndAnswersAsItsScriptSays(t *testing.T) {
	p := New(Options{Name: "row", Resource: "diff.example/row", Directory: t.TempDir()})
	script := `# a comment
devices a b@1,0 c!OK d!
node /dev/a /dev/b rw
mount /one /two
mount /three /four ro
env A=1 B=
annotation x=y
cdi v/c=1 v/c=2
another
env C=$name
`
	if err := p.Play(t.Context(), strings.NewReader(script), &strings.Builder{}); err != nil {
		t.Fatal(err)
	}

	list, err := devices([]string{"a", "b@1,0", "c!OK", "d!"})
	want := []*pluginapi.Device{
		{ID: "a", Health: pluginapi.Healthy},
		{ID: "b", Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{
			Nodes: []*pluginapi.NUMANode{{ID: 1}, {ID: 0}},
		}},
		{ID: "c", Health: "OK"}, {ID: "d"},
	}
	if diff := cmp.Diff(want, list, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v, devices (-want +got):\n%s", err, diff)
	}
	got, err := p.Allocate(t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"a", "c"}}},
	})
	answer := &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{
		{
			Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rw"}},
			Mounts: []*pluginapi.Mount{
				{HostPath: "/one", ContainerPath: "/two"}, {HostPath: "/three", ContainerPath: "/four", ReadOnly: true},
			},
			Envs: map[string]string{"A": "1", "B": ""}, Annotations: map[string]string{"x": "y"},
			CdiDevices: []*pluginapi.CDIDevice{{Name: "v/c=1"}, {Name: "v/c=2"}},
		},
		{Envs: map[string]string{"C": "row"}},
	}}
	if diff := cmp.Diff(answer, got, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v, answer (-want +got):\n%s", err, diff)
	}
	if said, err := p.Do(t.Context(), "calls"); err != nil || said != "1 calls, 2 devices, prepared 0" {
		t.Errorf("calls: %q, %v", said, err)
	}
}

// hostOf is a kubelet that registers one resource.
type hostOf struct {
	pluginapi.UnimplementedRegistrationServer
	resource string
	requests chan *pluginapi.RegisterRequest
}

func (h hostOf) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	h.requests <- request
	if request.GetResourceName() != h.resource {
		return nil, errors.New("no such resource")
	}
	return &pluginapi.Empty{}, nil
}

func TestAPluginRegistersAsItsScriptSays(t *testing.T) {
	directory := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(directory, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	host := hostOf{resource: "diff.example/row", requests: make(chan *pluginapi.RegisterRequest, 3)}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, host)
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-serving; err != nil {
			t.Error(err)
		}
	}()
	p := New(Options{Name: "row", Resource: host.resource, Directory: directory})
	defer p.Stop()
	var said strings.Builder

	script := "start\nregister endpoint=x/$name resource=$resource-2 version=v2\n"
	err = p.Play(t.Context(), strings.NewReader(script), &said)

	if err != nil || said.String() != "registered\nrefused\n" {
		t.Errorf("the plugin says %q, %v", said.String(), err)
	}
	for _, want := range []*pluginapi.RegisterRequest{
		{Version: pluginapi.Version, Endpoint: "row.sock", ResourceName: "diff.example/row"},
		{Version: "v2", Endpoint: "x/row", ResourceName: "diff.example/row-2"},
	} {
		if diff := cmp.Diff(want, <-host.requests, protocmp.Transform()); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	}
}

func TestALineThatMeansNothingIsAnErrorWithItsNumber(t *testing.T) {
	for line, says := range map[string]string{
		"dance":             "dance: there is no such command",
		"node /dev/a":       "it has 1 arguments, want 3",
		"cdi":               "it has 0 arguments, want 1",
		"env A":             `"A" has no value`,
		"mount /a /b rw":    `a mount is not ["rw"]`,
		"devices a@x":       "NUMA node",
		"lists":             "want how often",
		"lists x a":         "invalid syntax",
		"options y":         `no options ["y"]`,
		"takes long":        "invalid duration",
		"info colour=red":   `a description has no "colour"`,
		"register age=1":    `a registration has no "age"`,
		"devices 'a":        "a quote does not end",
		"serve a b":         "want one socket",
		"unlink":            "no such file",
		"annotation a=b c=": "it has 2 arguments, want 1",
	} {
		p := New(Options{Name: "row", Resource: "diff.example/row", Directory: t.TempDir()})
		err := p.Play(t.Context(), strings.NewReader("\n"+line+"\n"), &strings.Builder{})
		if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", line, err, says)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// execute runs the command with args and returns what it prints.
func execute(args ...string) (string, error) {
	var out bytes.Buffer
	command := NewCommand(args)
	command.SetOut(&out)
	command.SetErr(&out)
	err := command.Execute()
	return out.String(), err
}

// activePods are pods of the API server.
type activePods struct{}

func (activePods) Active(string) bool { return true }

// adopted is an origin that has one pod.
type adopted grants.Allocation

// Read implements grants.Origin.
func (a adopted) Read() (grants.Foreign, error) { return a, nil }

// Merge implements grants.Foreign.
func (a adopted) Merge(
	_ context.Context, _ map[string]grants.RuntimeState, allocations map[string]*grants.Allocation,
) {
	pod := grants.Allocation(a)
	allocations[a.PodUID] = &pod
}

// noPods is a runtime without pods.
type noPods struct{}

func (noPods) Pods(context.Context) (map[string]grants.RuntimeState, error) { return nil, nil }

func TestGrantsArePrintedForPeopleAndForPrograms(t *testing.T) {
	dir := t.TempDir()
	if got, err := execute("grants", "--state-dir", dir, "-o", "json"); err != nil || got != "[]\n" {
		t.Errorf("without a record: %q, %v", got, err)
	}
	device, err := kubeletdevice.Name(kubeletdevice.Device{Resource: "nvidia.com/gpu", ID: "GPU-8"})
	if err != nil {
		t.Fatal(err)
	}
	before := grants.Allocation{
		PodUID: "before", Namespace: "default", Name: "before", Adopted: true,
		PodInfo: &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
			"main": {
				DevRequests: types.ResourceList{device: 1}, AllocateFrom: types.ResourceLocation{device: device},
			},
		}},
	}
	checkpoint := grants.New(grants.Options{
		Path: filepath.Join(dir, grantsFile), Runtime: noPods{}, Pods: activePods{}, Origin: adopted(before),
	})
	defer checkpoint.Close()
	if err := checkpoint.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = checkpoint.Grant(context.Background(), grants.Allocation{PodUID: "u", Namespace: "default", Name: "train",
		PodInfo: &types.PodInfo{
			RunningContainers: map[string]types.ContainerInfo{"main": {
				DevRequests:  types.ResourceList{"resource/group/gpu/a/cards": 1},
				AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": "resource/group/gpu/GPU-7/cards"},
			}},
		}}, func(types.ResourceName) (int64, bool) { return 1, true })
	if err != nil {
		t.Fatal(err)
	}
	table, err := execute("grants", "--state-dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(table, "\n")
	if diff := cmp.Diff([]string{"NAMESPACE", "POD", "CONTAINER", "RESOURCE", "QUANTITY", "SINCE", "BY"},
		strings.Fields(lines[0])); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	var rows [][]string
	for _, line := range lines[1 : len(lines)-1] {
		row := strings.Fields(line)
		rows = append(rows, slices.Delete(row, 5, 6)) // but for the time
	}
	if diff := cmp.Diff([][]string{
		{"default", "before", "main", string(device), "1", "kubelet"},
		{"default", "train", "main", "resource/group/gpu/GPU-7/cards", "1", "scheduler"},
	}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got, err := execute("grants", "--state-dir", dir, "-o", "json"); err != nil ||
		!strings.Contains(got, `"podUID": "u"`) {
		t.Errorf("JSON: %s, %v", got, err)
	}
	if _, err := execute("grants", "--state-dir", dir, "-o", "xml"); err == nil {
		t.Error("XML is no error")
	}

	// To take kubecri away, only its own pods are in the way, and those that the kubelet has
	// forgotten.
	leaving := newEnrolOptions()
	leaving.kubecri.StateDir = dir
	adopted := kubeletstate.Holding{
		PodUID: "before", Container: "main", Resource: "nvidia.com/gpu", IDs: []string{"GPU-8"},
	}
	placeholders := adopted
	placeholders.Placeholder = true
	for name, test := range map[string]struct {
		holdings []kubeletstate.Holding
		want     []string
	}{
		"the kubelet knows the adopted pod":       {[]kubeletstate.Holding{adopted}, []string{"u"}},
		"it has forgotten it":                     {nil, []string{"before", "u"}},
		"it has, and called a placeholder for it": {[]kubeletstate.Holding{placeholders}, []string{"before", "u"}},
	} {
		uids, err := leaving.Granted(kubeletstate.State{Holdings: test.holdings})
		if err != nil || !slices.Equal(uids, test.want) {
			t.Errorf("%s: pods that need kubecri: %q, %v", name, uids, err)
		}
	}
}

func TestPluginCheckNamesWhyAFileIsNoPlugin(t *testing.T) {
	text := write(t, filepath.Join(t.TempDir(), "text.so"), "not a plugin")
	got, err := execute("plugin", "check", text)
	if err == nil || !strings.Contains(err.Error(), "1 of 1") || !strings.Contains(got, text) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestADirectoryOfPluginsIsCheckedAsTheDaemonLoadsIt(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.so"), "not a plugin")
	write(t, filepath.Join(dir, "a.so"), "not a plugin")
	write(t, filepath.Join(dir, ".hidden.so"), "not a plugin")
	write(t, filepath.Join(dir, "README"), "not a plugin")
	got, err := execute("plugin", "check", dir)
	if err == nil || !strings.Contains(err.Error(), "2 of 2") ||
		strings.Index(got, "a.so") > strings.Index(got, "b.so") {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := execute("plugin", "check", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no plugin") {
		t.Errorf("an empty directory: %q, %v", got, err)
	}
}

func TestAFileThatOthersMayChangeIsRefusedByACheck(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "open.so"), "not a plugin")
	if err := os.Chmod(file, 0o777); err != nil {
		t.Fatal(err)
	}
	const refused = "can be changed by users other than root"
	if got, err := execute("plugin", "check", file); err == nil || !strings.Contains(got, refused) {
		t.Errorf("%q, %v", got, err)
	}
	if got, _ := execute("plugin", "check", "--allow-writable-plugins", file); strings.Contains(got, refused) {
		t.Errorf("with the flag: %q", got)
	}
}

func TestWithoutFlagsItRunsAsItsConfigurationFileSaysOrPrintsHelp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubecri.yaml")
	bare := func() (string, error) {
		var out bytes.Buffer
		options, command := newCommand(nil)
		options.installedConfig, options.StateDir = path, filepath.Join(t.TempDir(), "state")
		command.SetOut(&out)
		err := command.Execute()
		if _, found := os.Stat(options.StateDir); found == nil {
			t.Error("it made its state directory")
		}
		return out.String(), err
	}
	said, err := bare()
	if err == nil || !strings.Contains(err.Error(), "there is no "+path) || !strings.Contains(said, "--cri-upstream") {
		t.Errorf("without a file: %q, %v", said, err)
	}
	write(t, path, "stateDir: here")
	if _, err = bare(); err == nil || !strings.Contains(err.Error(), path+": apiVersion is") {
		t.Errorf("with a file: %v", err)
	}
}

func TestTheHelpShowsSwitchesWithoutAValue(t *testing.T) {
	got, err := execute("--help")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "[=") || !regexp.MustCompile(`(?m)^ +--device-firewall  +keep `).MatchString(got) {
		t.Errorf("--help prints:\n%s", got)
	}
}

func TestTheVersionIsPrinted(t *testing.T) {
	if got, err := execute("--version"); err != nil || !strings.HasPrefix(got, "KubeDevice ") {
		t.Errorf("%q, %v", got, err)
	}
}

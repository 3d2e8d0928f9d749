// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

func TestAFileDescribesGPUs(t *testing.T) {
	tests := map[string]struct {
		yaml string
		want []gpu.GPU
	}{
		"nothing is no GPUs": {yaml: "", want: []gpu.GPU{}},
		"a count is enough": {
			yaml: "count: 2",
			want: []gpu.GPU{{ID: "sim-0", Memory: 16 << 30}, {ID: "sim-1", Memory: 16 << 30}},
		},
		"pairs in sockets": {
			yaml: "count: 5\ntopology: [2, 4]\nmemory: 1Ki\nidPrefix: n1-",
			want: []gpu.GPU{
				{ID: "n1-0", Memory: 1024, Groups: []int{0, 0}}, {ID: "n1-1", Memory: 1024, Groups: []int{0, 0}},
				{ID: "n1-2", Memory: 1024, Groups: []int{1, 0}}, {ID: "n1-3", Memory: 1024, Groups: []int{1, 0}},
				{ID: "n1-4", Memory: 1024, Groups: []int{2, 1}},
			},
		},
		"close groups only, one GPU unhealthy": {
			yaml: "count: 2\ntopology: [2]\nunhealthy: [sim-1, sim-7]",
			want: []gpu.GPU{
				{ID: "sim-0", Memory: 16 << 30, Groups: []int{0}},
				{ID: "sim-1", Memory: 16 << 30, Groups: []int{0}, Unhealthy: true},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := parseConfig([]byte(test.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, config.gpus()); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheSampleFileSpellsOutTheDefaults(t *testing.T) {
	sample, err := New("../simgpu.yaml").read()
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Count, want.Topology, want.Unhealthy = 8, []int{2, 4}, []string{}
	if diff := cmp.Diff(want, sample); diff != "" {
		t.Errorf("sample (-want +got):\n%s", diff)
	}
}

func TestAFileThatMakesNoSenseIsAnErrorThatNamesTheField(t *testing.T) {
	for yaml, want := range map[string]string{
		"count: -1":             "count is -1: use 0 to 1024",
		"count: 100000":         "count is 100000: use 0 to 1024",
		"count: many":           "count",
		"gpus: 3":               `unknown field "gpus"`,
		"idPrefix: ''":          `idPrefix is ""`,
		"idPrefix: a/b":         `idPrefix is "a/b"`,
		"idPrefix: ../a":        `idPrefix is "../a"`,
		"memory: -1":            "memory is -1",
		"memory: lots":          "quantities must match",
		"topology: [1, 2, 4]":   "topology has 3 sizes",
		"topology: [0]":         "topology is [0]",
		"topology: [0, 4]":      "topology is [0 4]",
		"topology: [3, 4]":      "topology is [3 4]",
		"resourceName: ''":      "resourceName is empty",
		"deviceDir: here":       `deviceDir is "here"`,
		"deviceDir: /":          `deviceDir is "/"`,
		"deviceNumber: {x: 1}":  `unknown field "x"`,
		"count: -1\nmemory: -1": "count is -1: use 0 to 1024\nmemory is -1",
		"{":                     "yaml",
	} {
		if _, err := parseConfig([]byte(yaml)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", yaml, err, want)
		}
	}
}

func FuzzAnyFileIsGPUsOrAnError(f *testing.F) {
	f.Add(
		"count: 5\ntopology: [2, 4]\nmemory: 1Ki\nidPrefix: n1-\nunhealthy: [n1-0]\ndeviceNumber: {major: 1, minor: 2}",
	)
	f.Add("count: 1e3")
	f.Add("topology: [-1, 1]")
	f.Fuzz(func(t *testing.T, yaml string) {
		config, err := parseConfig([]byte(yaml))
		if err != nil {
			return
		}
		if got := len(config.gpus()); got != config.Count {
			t.Errorf("%d GPUs of %d", got, config.Count)
		}
	})
}

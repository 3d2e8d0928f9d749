// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"runtime/debug"
	"testing"
)

func TestExplainsDifferences(t *testing.T) {
	program := func(settings map[string]string, deps ...*debug.Module) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Path: "example.com/program", Version: "(devel)"}, Deps: deps}
		for key, value := range settings {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: key, Value: value})
		}
		return info
	}
	module := func(path, version string) *debug.Module { return &debug.Module{Path: path, Version: version} }
	replaced := func(path, version, replacement string) *debug.Module {
		return &debug.Module{Path: path, Version: version, Replace: module("../elsewhere", replacement)}
	}
	tests := map[string]struct {
		host, plugin *debug.BuildInfo
		pkg          string
		want         string
	}{
		"the module of the package comes before all others": {
			host: program(map[string]string{"-race": "true"}, module("example.com/a", "v1.0.0"),
				module("example.com/b", "v1.0.0")),
			plugin: program(nil, module("example.com/a", "v1.1.0"), module("example.com/b", "v1.1.0")),
			pkg:    "example.com/b/sub",
			want:   "module example.com/b is v1.1.0 in the plugin and v1.0.0 here",
		},
		"the longest module path is the package's": {
			host:   program(nil, module("example.com/a", "v1.0.0"), module("example.com/a/b", "v2.0.0")),
			plugin: program(nil, module("example.com/a", "v1.1.0"), module("example.com/a/b", "v2.1.0")),
			pkg:    "example.com/a/b",
			want:   "module example.com/a/b is v2.1.0 in the plugin and v2.0.0 here",
		},
		"a module path is no mere prefix": {
			host:   program(map[string]string{"-race": "true"}, module("example.com/a", "v1.0.0")),
			plugin: program(nil, module("example.com/a", "v1.1.0")),
			pkg:    "example.com/ab",
			want:   "-race is unset in the plugin and true here",
		},
		"flags explain a package of the standard library": {
			host: program(map[string]string{"-trimpath": "true", "-tags": "x", "GOAMD64": "v1", "-ldflags": "-s"},
				module("example.com/a", "v1.0.0")),
			plugin: program(map[string]string{"-trimpath": "true", "-tags": "y", "GOAMD64": "v3", "-asan": "true"},
				module("example.com/a", "v1.1.0")),
			pkg:  "internal/abi",
			want: "-asan is true in the plugin and unset here",
		},
		"other modules explain it where no flag does": {
			host:   program(nil, module("example.com/a", "v1.0.0"), module("example.com/host", "v1.0.0")),
			plugin: program(nil, module("example.com/a", "v1.1.0"), module("example.com/plugin", "v1.0.0")),
			pkg:    "example.com/other",
			want:   "module example.com/a is v1.1.0 in the plugin and v1.0.0 here",
		},
		"the version of a replacement counts": {
			host:   program(nil, replaced("example.com/a", "v1.0.0", "v1.5.0")),
			plugin: program(nil, module("example.com/a", "v1.0.0")),
			pkg:    "example.com/a",
			want:   "module example.com/a is v1.0.0 in the plugin and v1.5.0 here",
		},
		"a directory as replacement has none": {
			host:   program(nil, replaced("example.com/a", "v1.0.0", "(devel)")),
			plugin: program(nil, replaced("example.com/a", "v1.1.0", "")),
			pkg:    "example.com/a",
			want:   "module example.com/a is v1.1.0 in the plugin and v1.0.0 here",
		},
		"a long list of differences is shortened": {
			host: program(nil, module("a", "v1"), module("b", "v1"), module("c", "v1"), module("d", "v1"),
				module("e", "v1"), module("f", "v1"), module("g", "v1")),
			plugin: program(nil, module("a", "v2"), module("b", "v2"), module("c", "v2"), module("d", "v2"),
				module("e", "v2"), module("f", "v2"), module("g", "v2")),
			pkg: "h",
			want: "module a is v2 in the plugin and v1 here, module b is v2 in the plugin and v1 here, module c is " +
				"v2 in the plugin and v1 here, " +
				"module d is v2 in the plugin and v1 here, module e is v2 in the plugin and v1 here, and 2 more",
		},
		"only changed sources can explain it": {
			host:   program(nil, module("example.com/a", "v1.0.0")),
			plugin: program(nil, module("example.com/a", "v1.0.0")),
			pkg:    "example.com/a",
			want:   "their build information is the same, so one of them is built from changed sources",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := explain(test.host, test.plugin, test.pkg); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

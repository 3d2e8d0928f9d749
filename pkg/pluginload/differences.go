// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxDifferences is how many differences one line lists at most.
const maxDifferences = 5

// abiSettings are the build settings that must be equal in host and plugin. Tags, -ldflags and
// GOAMD64 need not be.
var abiSettings = []string{
	"-race", "-msan", "-asan", "-cover", "-gcflags", "-asmflags", "-compiler", "-trimpath", "GOEXPERIMENT",
}

// sdkPackage is one package of the SDK, which identifies its module.
var sdkPackage = reflect.TypeFor[types.PodInfo]().PkgPath()

// explain returns the likely reason of the runtime's error that plugin was built with another
// version of package pkg than host. The build information alone decides nothing: modules of which
// the two share no package may differ, and sources of equal versions may differ.
func explain(host, plugin *debug.BuildInfo, pkg string) string {
	if difference := moduleDifference(moduleOf(host, pkg), moduleOf(plugin, pkg)); difference != "" {
		return difference
	}
	differences := settingDifferences(host, plugin)
	if differences == nil {
		differences = moduleDifferences(host, plugin)
	}
	if differences == nil {
		return "their build information is the same, so one of them is built from changed sources"
	}
	if more := len(differences) - maxDifferences; more > 0 {
		differences = append(differences[:maxDifferences], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(differences, ", ")
}

func settingDifferences(host, plugin *debug.BuildInfo) []string {
	var differences []string
	for _, key := range abiSettings {
		if here, there := setting(host, key), setting(plugin, key); here != there {
			differences = append(differences,
				fmt.Sprintf("%s is %s in the plugin and %s here", key, orUnset(there), orUnset(here)))
		}
	}
	return differences
}

func moduleDifferences(host, plugin *debug.BuildInfo) []string {
	here := map[string]*debug.Module{}
	for _, module := range modules(host) {
		here[module.Path] = module
	}
	var differences []string
	for _, module := range modules(plugin) {
		if difference := moduleDifference(here[module.Path], module); difference != "" {
			differences = append(differences, difference)
		}
	}
	return differences
}

// moduleDifference compares one module in host and plugin. It is empty when one of them lacks the
// module.
func moduleDifference(host, plugin *debug.Module) string {
	if host == nil || plugin == nil || host.Path != plugin.Path || version(host) == version(plugin) {
		return ""
	}
	return fmt.Sprintf("module %s is %s in the plugin and %s here", plugin.Path, version(plugin), version(host))
}

// modules returns all modules of a program, its main module included.
func modules(info *debug.BuildInfo) []*debug.Module {
	return append([]*debug.Module{&info.Main}, info.Deps...)
}

// moduleOf returns the module of info that contains pkg, or nil.
func moduleOf(info *debug.BuildInfo, pkg string) *debug.Module {
	var longest *debug.Module
	for _, module := range modules(info) {
		if module.Path != "" && strings.HasPrefix(pkg+"/", module.Path+"/") &&
			(longest == nil || len(module.Path) > len(longest.Path)) {
			longest = module
		}
	}
	return longest
}

// version is the built version: that of the replacement, unless this is a directory, which has no
// version.
func version(module *debug.Module) string {
	const directory = "(devel)"
	if r := module.Replace; r != nil && r.Version != "" && r.Version != directory {
		return r.Version
	}
	return module.Version
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func orUnset(value string) string {
	if value == "" {
		return "unset"
	}
	return value
}

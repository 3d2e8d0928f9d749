// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"plugin"
)

// CreateDeviceFromPlugin opens the plugin file pluginName and returns the Device that its entry
// point creates. It does no check beyond those of package plugin: opening a damaged file ends the
// process. The host checks a file before it opens it; see "kubecri plugin check".
func CreateDeviceFromPlugin(pluginName string) (Device, error) {
	opened, err := plugin.Open(pluginName)
	if err != nil {
		return nil, err
	}
	symbol, err := opened.Lookup(CreateSymbol)
	if err != nil {
		return nil, err
	}
	create, ok := symbol.(CreateFunc)
	if !ok {
		return nil, fmt.Errorf("plugin %q: %s is a %T, want a %T", pluginName, CreateSymbol, symbol, CreateFunc(nil))
	}
	return create()
}

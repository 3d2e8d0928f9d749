// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/policing"
	"github.com/kubedevice/kubedevice/pkg/node/sharelibrary"
)

// newEnforcement returns what holds containers to their shares of devices: the library, nil for
// none, and the enforcement, nil where nothing does. use is nil where it is not read.
func newEnforcement(
	manager *plugins.Manager, use *deviceUsage, options *Options,
) (*sharelibrary.Library, *policing.Enforcement) {
	var reader policing.Usage
	if use != nil {
		reader = use.reader
	}
	if options.ShareLibrary.Path != "" {
		library := sharelibrary.New(options.ShareLibrary, options.StateDir, manager)
		return library, policing.NewEnforcement(reader, library, options.OnShareExceeded)
	}
	if reader != nil {
		return nil, policing.NewEnforcement(reader, nil, options.OnShareExceeded)
	}
	return nil, nil
}

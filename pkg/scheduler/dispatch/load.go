// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

// Load returns the set of the plugins in a folder, in the order of their file names. A file that cannot be loaded is
// reported in the log and left out.
func Load(ctx context.Context, dir string) *Set {
	loaded, _ := pluginload.LoadDir(ctx, dir, pluginload.Schedulers())
	plugins := make([]Named, len(loaded))
	for i, plugin := range loaded {
		plugins[i] = Named{File: plugin.File, Plugin: plugin.Plugin}
	}
	return New(klog.FromContext(ctx), plugins...)
}

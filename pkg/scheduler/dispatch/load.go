// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

// Load returns the set of the built-in device schedulers and, after them, of the plugins in a
// directory, in the order of their file names. A file that cannot be loaded is reported in the log and
// left out, and so is one that other users may change, unless allowWritable is set. recorder may be nil.
func Load(ctx context.Context, recorder Recorder, dir string, allowWritable bool, builtIn ...Named) *Set {
	plugins := slices.Clone(builtIn)
	loaded, _ := pluginload.LoadDir(ctx, dir, pluginload.Schedulers().AllowWritable(allowWritable))
	for _, plugin := range loaded {
		plugins = append(plugins, Named{File: plugin.File, Plugin: plugin.Plugin})
	}
	return New(klog.FromContext(ctx), recorder, plugins...)
}

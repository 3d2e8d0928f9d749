// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicescheduler

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// Specialist is implemented by a plugin that has to do with nothing but devices of its own kinds:
// it neither reads nor changes what nodes have, use and are asked for of others. It is not called
// for pods that request none of its kinds, nor for what they hold. Where all plugins are
// specialists, one that is quarantined keeps only pods waiting that request its kinds.
type Specialist interface {
	// Kinds returns the plugin's kinds of devices. It is asked once, when the plugin is loaded.
	Kinds() Kinds
}

// Kinds are kinds of devices, by the names that requests and resources have.
type Kinds struct {
	// Plain are plain resource names, such as nvidia.com/gpu.
	Plain []types.ResourceName
	// Levels are the levels of device resources: a path, written with or without resource/group, is
	// of these kinds when any of them stands in it as a level.
	Levels []string
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicescheduler

// Describer is implemented by a plugin that has words for what its device paths name. The group
// scheduler uses them to say why a pod does not fit: "have fewer than 2 free GPUs in one NVLink
// pair". What has no word appears by its own name.
type Describer interface {
	// Words returns them. It is asked once, when the plugin is loaded. Of two plugins that have a
	// word for the same, the first one's counts.
	Words() Words
}

// Words are what people call devices, the groups that they stand in, and quantities of their
// resources.
type Words struct {
	// Levels has the word for an instance of a level, by the level's name: gpu, gpugrp0.
	Levels map[string]Noun
	// Units has the unit of a resource's quantities, by the level that has the resource and the
	// resource: gpu/memory.
	Units map[string]Unit
}

// Noun is the word for a thing, without an article: One for one of them, Many for several.
type Noun struct{ One, Many string }

// Unit is what a quantity is written with: Bytes, or any text that follows the number, such as "W".
type Unit string

// Bytes is the unit of quantities that are written in MiB, GiB and so on.
const Bytes Unit = "bytes"

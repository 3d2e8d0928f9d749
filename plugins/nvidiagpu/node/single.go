// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// wholeGPUs stands for GPUs that are not partitioned, among profiles of instances.
const wholeGPUs = ""

// single is what strategy single counts as GPUs: instances of one profile, or whole GPUs.
//
// All should be alike, by the rules of NVIDIA's plugin. While they are not, as while an
// administrator partitions one GPU after the other, what was counted before is counted on, and what
// pods hold stays until they go: a pod must not get a device of another size, nor lose its own.
// While it is not known who holds what, as after a start, the others are there and not offered.
type single struct {
	profile string
	chosen  bool
}

// chooseSingle chooses what is counted. problem says what is there in addition.
func (d *Device) chooseSingle() (problem error) {
	type number struct{ held, all int }
	there := map[string]number{}
	add := func(profile, uuid string) {
		n := there[profile]
		n.all++
		if d.holding.held[uuid] {
			n.held++
		}
		there[profile] = n
	}
	for _, k := range d.known {
		if !k.Partitioned {
			add(wholeGPUs, k.ID)
			continue
		}
		if len(k.instances) == 0 && problem == nil {
			problem = fmt.Errorf("GPU %s is partitioned and has no instance", k.ID)
		}
		for _, instance := range k.instances {
			add(instance.Profile, instance.UUID)
		}
	}
	if len(there) == 0 {
		return problem
	}
	profiles := slices.Sorted(maps.Keys(there))
	if _, stays := there[d.single.profile]; !stays || !d.single.chosen {
		most := slices.MaxFunc(profiles, func(a, b string) int {
			return cmp.Or(there[a].held-there[b].held, there[a].all-there[b].all)
		})
		d.single = single{most, d.holding.complete}
	}
	if len(profiles) == 1 {
		return problem
	}
	for i, profile := range profiles {
		profiles[i] = describe(profile)
	}
	return fmt.Errorf("there are %s, and flags.migStrategy is single in %s: only %s are offered, and what pods hold",
		strings.Join(profiles, " and "), d.paths.Config, describe(d.single.profile))
}

func describe(profile string) string {
	if profile == wholeGPUs {
		return "whole GPUs"
	}
	return "instances of " + profile
}

// counts reports whether strategy single counts a device of that profile, and whether it offers it.
func (d *Device) counts(profile, uuid string) (counted, offered bool) {
	offered = profile == d.single.profile || d.holding.held[uuid]
	return offered || !d.holding.complete, offered
}

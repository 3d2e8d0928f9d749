// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// ours are the fields that NVIDIA's plugin does not have, and ignores.
type ours struct {
	MIGLayouts []layout `json:"migLayouts"`
}

type layout struct {
	GPUs        []string `json:"gpus"`
	Instances   []string `json:"instances"`
	ReplaceIdle bool     `json:"replaceIdle"`
}

// maxInstances is more than any GPU can have.
const maxInstances = 16

// layouts takes over the layouts.
func (r *reader) layouts(list []layout) {
	seen := map[string]bool{}
	for i, l := range list {
		if len(l.Instances) == 0 || len(l.Instances) > maxInstances {
			r.complain("kubedevice.migLayouts[%d].instances has %d profiles: use 1 to %d, such as 1g.10gb", i,
				len(l.Instances), maxInstances)
		}
		for _, profile := range l.Instances {
			if !strings.Contains(profile, "g.") || strings.Contains(profile, "c.") {
				r.complain("kubedevice.migLayouts[%d].instances has %q: use the profile of a GPU instance, "+
					"such as 1g.10gb", i, profile)
			}
		}
		for _, uuid := range l.GPUs {
			if !strings.HasPrefix(uuid, "GPU-") {
				r.complain("kubedevice.migLayouts[%d].gpus has %q: use UUIDs, as nvidia-smi -L shows them", i, uuid)
			}
			if seen[uuid] {
				r.complain("kubedevice.migLayouts[%d].gpus has %s, which an earlier layout has", i, uuid)
			}
			seen[uuid] = true
		}
		if len(l.GPUs) == 0 && i < len(list)-1 {
			r.complain("kubedevice.migLayouts[%d] has no gpus, and others follow: put the layout for all other GPUs "+
				"last", i)
		}
		r.config.Layouts = append(r.config.Layouts, Layout{
			GPUs: l.GPUs, Profiles: l.Instances, ReplaceIdle: l.ReplaceIdle,
		})
	}
	if len(list) > 0 && r.config.MIG == None {
		r.complain("kubedevice.migLayouts needs flags.migStrategy mixed or single: with none no instance is offered")
	}
}

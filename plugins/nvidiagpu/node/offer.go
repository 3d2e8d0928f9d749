// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/config"
)

// offer returns the GPUs and instances that pods may be given, by the strategy for partitioned
// GPUs. A partitioned GPU itself is never offered, nor an instance that makes room. problem says
// why something else that is there is not.
func (d *Device) offer() (gpus []gpu.GPU, problem error) {
	strategy := d.config.MIG
	for _, k := range d.known {
		g := k.GPU
		g.Unhealthy = !d.health.gpus[g.ID].health.Healthy
		if g.Partitioned && strategy == config.None && problem == nil {
			problem = fmt.Errorf("GPU %s is partitioned and not offered: flags.migStrategy in %s is none, "+
				"use mixed or single", g.ID, d.paths.Config)
		}
		if g.Partitioned && strategy != config.None {
			for _, instance := range k.instances {
				if _, goes := d.holding.withdrawn[instance.UUID]; goes {
					continue
				}
				resource, offered := gpu.ProfileResource(instance.Profile), true
				if strategy == config.Single {
					var counted bool
					if counted, offered = d.counts(instance.Profile, instance.UUID); !counted {
						continue
					}
					resource = gpu.Cards
				}
				g.Instances = append(g.Instances, gpu.Instance{
					ID: instance.UUID, GPUInstance: int(instance.GPUInstance), Resource: resource,
					Unhealthy: !offered || !d.health.gpus[instance.UUID].health.Healthy,
				})
			}
		}
		if strategy == config.Single && !g.Partitioned {
			counted, offered := d.counts(wholeGPUs, g.ID)
			if !counted {
				continue
			}
			g.Unhealthy = g.Unhealthy || !offered
		}
		gpus = append(gpus, g)
	}
	return gpus, problem
}

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
				resource := gpu.ProfileResource(instance.Profile)
				if strategy == config.Single {
					resource = gpu.Cards
				}
				g.Instances = append(g.Instances, gpu.Instance{
					ID: instance.UUID, GPUInstance: int(instance.GPUInstance), Resource: resource,
					Unhealthy: !d.health.gpus[instance.UUID].health.Healthy,
				})
			}
		}
		gpus = append(gpus, g)
	}
	return gpus, problem
}

// checkSingle says why instances cannot be counted in the place of GPUs, by the rules of NVIDIA's
// plugin: all GPUs are partitioned or none, and all instances are of one profile. Without strategy
// single there is nothing to check.
func (d *Device) checkSingle() error {
	if d.config.MIG != config.Single {
		return nil
	}
	const remedy = "what is offered stays as it was: flags.migStrategy is single in "
	profile := ""
	for _, k := range d.known {
		if k.Partitioned != d.known[0].Partitioned {
			return fmt.Errorf("some GPUs are partitioned and some are not, so "+remedy+"%s", d.paths.Config)
		}
		if k.Partitioned && len(k.instances) == 0 {
			return fmt.Errorf("GPU %s is partitioned and has no instance, so "+remedy+"%s", k.ID, d.paths.Config)
		}
		for _, instance := range k.instances {
			if profile == "" {
				profile = instance.Profile
			}
			if instance.Profile != profile {
				return fmt.Errorf("there are instances of %s and of %s, so "+remedy+"%s", profile, instance.Profile,
					d.paths.Config)
			}
		}
	}
	return nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/utils"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// partitionAll partitions the GPUs as the configuration says, and lists their instances anew where
// it has created some. It returns what is wrong.
func (d *Device) partitionAll(present []found) (problems []error) {
	for i := range present {
		g := &present[i]
		created, err := d.partition(*g)
		if created {
			if instances, err := g.device.Instances(); err == nil {
				g.instances = instances
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("GPU %s: %w", g.uuid, err))
		}
	}
	return problems
}

// partition creates the instances that the layout of a GPU has and the GPU has not, where they fit
// beside those that are there. It destroys nothing, so that whatever runs on an instance is left
// alone, and it remembers nothing: what is missing is what the driver does not list. So it may end
// at any point, and goes on from there. It reports whether it has created anything.
func (d *Device) partition(g found) (created bool, err error) {
	wanted, ok := d.config.LayoutOf(g.uuid)
	if !ok || !g.partitioned || g.unlisted != nil {
		return false, nil
	}
	profiles, err := g.device.Profiles()
	if err != nil {
		return false, err
	}
	p := partitioning{gpu: g, profiles: profiles}
	there, err := g.device.GPUInstances()
	if err != nil {
		return false, err
	}
	missing, err := p.complete(there, wanted)
	if err == nil {
		err = p.fill(there, missing)
	}
	return p.created, err
}

// partitioning is one pass over a GPU.
type partitioning struct {
	gpu      found
	profiles []mig.Profile
	created  bool
}

// profile returns the profile with that property.
func (p *partitioning) profile(is func(mig.Profile) bool) (mig.Profile, bool) {
	i := slices.IndexFunc(p.profiles, is)
	if i < 0 {
		return mig.Profile{}, false
	}
	return p.profiles[i], true
}

// complete gives GPU instances of the layout the compute instance that they lack: an earlier pass
// has ended in between. It returns the profiles of the instances that are missing.
func (p *partitioning) complete(there []nvml.GPUInstance, wanted []string) (missing []string, err error) {
	missing = slices.Clone(wanted)
	for _, instance := range there {
		profile, ok := p.profile(func(m mig.Profile) bool { return m.ID == instance.Profile })
		at := slices.Index(missing, profile.Name)
		if !ok || at < 0 {
			continue // it is not of the layout
		}
		missing = slices.Delete(missing, at, at+1)
		if p.hasCompute(instance.ID) {
			continue
		}
		p.created = true
		if err := p.gpu.device.CreateComputeInstance(instance.ID, profile); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func (p *partitioning) hasCompute(gpuInstance uint32) bool {
	return slices.ContainsFunc(p.gpu.instances, func(i nvml.Instance) bool { return i.GPUInstance == gpuInstance })
}

// fill creates the missing instances: all of them, or of those that come first in the layout as
// many as fit.
func (p *partitioning) fill(there []nvml.GPUInstance, missing []string) error {
	var beside []mig.Instance
	for _, instance := range there {
		profile, _ := p.profile(func(m mig.Profile) bool { return m.ID == instance.Profile })
		beside = append(beside, mig.Instance{Profile: profile.Name, Place: instance.Place})
	}
	planner := mig.NewPlanner(p.profiles, mig.DefaultBudget)
	var placed []mig.Instance
	fits := 0
	for fits = len(missing); fits > 0; fits-- {
		if found, ok, _ := planner.Place(beside, missing[:fits]); ok {
			placed = found
			break
		}
	}
	for _, instance := range placed {
		profile, _ := p.profile(func(m mig.Profile) bool { return m.Name == instance.Profile })
		id, err := p.gpu.device.CreateGPUInstance(profile, instance.Place)
		if err == nil {
			p.created = true
			err = p.gpu.device.CreateComputeInstance(id, profile)
		}
		if err != nil {
			return err
		}
		utils.Logf(0, "NVIDIA GPU %s has a new MIG instance of %s", p.gpu.uuid, profile.Name)
	}
	if fits < len(missing) {
		return fmt.Errorf("there is no room for %s beside its other MIG instances: end what uses those that are not "+
			"of the layout, and destroy them with nvidia-smi mig -dci and -dgi", strings.Join(missing[fits:], ", "))
	}
	return nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/utils"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

const (
	// withdrawal is how long an instance is not offered before it is destroyed. By then the
	// scheduler has long seen that it is not, and the node any pod that was bound before.
	withdrawal = 15 * time.Second
	// refusal is how long an instance is let alone that the driver has refused to destroy.
	refusal = time.Minute
	// fresh is how old the answer may be who holds what when an instance is destroyed. The host
	// reports it before each look at the GPUs, and a driver may hang in that.
	fresh = 2 * time.Second
)

// holding is what is known of who has which instance.
type holding struct {
	// held are the UUIDs of instances that pods hold. They are all only if complete.
	held     map[string]bool
	complete bool
	reported time.Time // when that was so
	// withdrawn are the UUIDs of instances that are not offered any more, each since when.
	withdrawn map[string]time.Time
	// refused are the GPU instances that the driver has not destroyed, each since when.
	refused map[gpuInstance]time.Time

	now func() time.Time
}

// gpuInstance names a GPU instance by its GPU's UUID and its number there.
type gpuInstance struct {
	gpu string
	id  uint32
}

func newHolding() holding {
	return holding{withdrawn: map[string]time.Time{}, refused: map[gpuInstance]time.Time{}, now: time.Now}
}

// SetHeld notes which instances pods hold. The others may be destroyed, where a layout says so.
func (d *Device) SetHeld(devices []string, complete bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holding.held, d.holding.complete, d.holding.reported = map[string]bool{}, complete, time.Now()
	for _, device := range devices {
		d.holding.held[path.Base(device)] = true
	}
}

// partitionAll partitions the GPUs as the configuration says, and lists their instances again where
// it has changed some. It returns what is wrong.
func (d *Device) partitionAll(present []found) (problems []error) {
	offeredNoMore := map[string]time.Time{}
	for i := range present {
		g := &present[i]
		layout, ok := d.config.LayoutOf(g.uuid)
		if !ok || !g.partitioned || g.unlisted != nil {
			continue
		}
		p := partitioning{gpu: g, layout: layout.Profiles, holding: &d.holding, withdrawn: offeredNoMore}
		err := p.run(layout.ReplaceIdle)
		if p.changed {
			if instances, err := g.device.Instances(); err == nil {
				g.instances = instances
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("GPU %s: %w", g.uuid, err))
		}
	}
	d.holding.withdrawn = offeredNoMore
	return problems
}

// partitioning is one pass over a GPU. It remembers nothing of what it has created: what is missing
// is what the driver does not list. So it may end at any point, and the next one goes on from
// there.
type partitioning struct {
	gpu      *found
	layout   []string
	holding  *holding
	profiles []mig.Profile
	there    []nvml.GPUInstance
	changed  bool // whether it has created or destroyed anything
	// withdrawn takes the UUIDs of instances that are to go, each since when they are not offered.
	withdrawn map[string]time.Time
}

// run gives the GPU the instances of the layout that it lacks, where they fit next to those that
// are there. It destroys none that is held, and none at all unless idle ones may be replaced.
func (p *partitioning) run(replaceIdle bool) (err error) {
	if p.profiles, err = p.gpu.device.Profiles(); err != nil {
		return err
	}
	if p.there, err = p.gpu.device.GPUInstances(); err != nil {
		return err
	}
	if err := p.complete(); err != nil {
		return err
	}
	planner := mig.NewPlanner(p.profiles, mig.DefaultBudget)
	present := p.instances()
	if replaceIdle && p.holding.complete {
		change := planner.Change(present, p.idle(), p.layout)
		due, err := p.remove(change.Remove)
		if err != nil || !due {
			return err
		}
		for _, i := range change.Remove {
			present[i].Profile = ""
		}
		present = slices.DeleteFunc(present, func(i mig.Instance) bool { return i.Profile == "" })
	}
	change := planner.Change(present, nil, p.layout)
	if err := p.create(change.Create); err != nil || len(change.Short) == 0 {
		return err
	}
	remedy := "set replaceIdle in the layout, or end what uses those that are not of it, and destroy them with " +
		"nvidia-smi mig -dci and -dgi"
	if replaceIdle {
		remedy = "end the pods that hold those that are not of the layout"
	}
	return fmt.Errorf("there is no room for %s next to its other MIG instances: %s", strings.Join(change.Short, ", "),
		remedy)
}

// instances returns what is there as the planner knows it.
func (p *partitioning) instances() []mig.Instance {
	list := make([]mig.Instance, len(p.there))
	for i, instance := range p.there {
		list[i] = mig.Instance{Profile: p.profileOf(instance).Name, Place: instance.Place}
	}
	return list
}

func (p *partitioning) profileOf(instance nvml.GPUInstance) mig.Profile {
	profile, _ := p.profile(func(m mig.Profile) bool { return m.ID == instance.Profile })
	return profile
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
// has ended in between.
func (p *partitioning) complete() error {
	missing := slices.Clone(p.layout)
	for _, instance := range p.there {
		profile := p.profileOf(instance)
		at := slices.Index(missing, profile.Name)
		if at < 0 {
			continue // it is not of the layout
		}
		missing = slices.Delete(missing, at, at+1)
		if len(p.compute(instance)) > 0 {
			continue
		}
		p.changed = true
		if err := p.gpu.device.CreateComputeInstance(instance.ID, profile); err != nil {
			return err
		}
	}
	return nil
}

// compute returns the compute instances of a GPU instance.
func (p *partitioning) compute(gpuInstance nvml.GPUInstance) (list []nvml.Instance) {
	for _, instance := range p.gpu.instances {
		if instance.GPUInstance == gpuInstance.ID {
			list = append(list, instance)
		}
	}
	return list
}

// idle returns the positions of the GPU instances that no pod holds, as far as is known.
func (p *partitioning) idle() (positions []int) {
	for i, instance := range p.there {
		name := gpuInstance{p.gpu.uuid, instance.ID}
		if since, refused := p.holding.refused[name]; refused && p.holding.now().Sub(since) < refusal {
			continue
		}
		if !slices.ContainsFunc(p.compute(instance), func(c nvml.Instance) bool { return p.holding.held[c.UUID] }) {
			positions = append(positions, i)
		}
	}
	return positions
}

// remove destroys instances, by their positions, once none of them was offered for long enough, and
// it is known that no pod has got one meanwhile. due says that none is left.
func (p *partitioning) remove(positions []int) (due bool, err error) {
	now := p.holding.now()
	due = true
	for _, i := range positions {
		for _, c := range p.compute(p.there[i]) {
			since, known := p.holding.withdrawn[c.UUID]
			if !known {
				since = now
				utils.Logf(0, "NVIDIA GPU %s: MIG instance %s of %s, which no pod holds, makes room for the layout: "+
					"it is not offered any more, and destroyed in %v", p.gpu.uuid, c.UUID, c.Profile, withdrawal)
			}
			p.withdrawn[c.UUID] = since
			due = due && now.Sub(since) >= withdrawal
		}
	}
	if !due {
		return false, nil
	}
	if age := time.Since(p.holding.reported); age > fresh {
		return false, fmt.Errorf("reading the GPUs has taken so long that a pod may have got a MIG instance which "+
			"is in the way of the layout: who held it was known %v ago, which may be %v", age.Round(time.Second), fresh)
	}
	for _, i := range positions {
		instance := p.there[i]
		var numbers []uint32
		for _, c := range p.compute(instance) {
			numbers = append(numbers, c.ComputeInstance)
			delete(p.withdrawn, c.UUID)
		}
		p.changed = true
		if err := p.gpu.device.Destroy(instance.ID, numbers); err != nil {
			p.holding.refused[gpuInstance{p.gpu.uuid, instance.ID}] = now
			return false, fmt.Errorf("a MIG instance of %s is in the way of the layout, no pod holds it, and it "+
				"cannot be destroyed: %w", p.profileOf(instance).Name, err)
		}
		utils.Logf(0, "NVIDIA GPU %s: a MIG instance of %s is destroyed", p.gpu.uuid, p.profileOf(instance).Name)
	}
	return true, nil
}

// create creates instances.
func (p *partitioning) create(instances []mig.Instance) error {
	for _, instance := range instances {
		profile, _ := p.profile(func(m mig.Profile) bool { return m.Name == instance.Profile })
		id, err := p.gpu.device.CreateGPUInstance(profile, instance.Place)
		if err == nil {
			p.changed = true
			err = p.gpu.device.CreateComputeInstance(id, profile)
		}
		if err != nil {
			return err
		}
		utils.Logf(0, "NVIDIA GPU %s has a new MIG instance of %s", p.gpu.uuid, profile.Name)
	}
	return nil
}

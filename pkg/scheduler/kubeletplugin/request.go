// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	podrequest "github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// podRequest is the device request of a pod, for any node. It is immutable: an allocation has
// copies of its containers.
type podRequest struct {
	containers []*container // running ones by name, then init containers by name; none has counts yet
	excluded   map[deviceID]bool
	inGroups   int64 // devices that groups request
	err        error // the reason why no node can serve the pod
}

// readRequest returns the request of a pod. spec lists the containers in the order of the pod's
// spec. The caller does not change the pod while the request is in use.
func readRequest(pod *types.PodInfo, spec []grouptree.Container) *podRequest {
	r := &podRequest{excluded: map[deviceID]bool{}}
	r.err = r.read(pod, spec)
	return r
}

func (r *podRequest) read(pod *types.PodInfo, spec []grouptree.Container) error {
	podGroups, err := r.parseGroups(nil, pod.Requests)
	if err != nil {
		return fmt.Errorf("cannot serve the pod: %w", err)
	}
	if len(podGroups) > 0 {
		return fmt.Errorf("cannot serve %s for a pod as a whole: write it under one of its containers",
			podGroups[0].items[0].request)
	}
	positions := make(map[string]int, len(spec))
	for i, listed := range spec {
		positions[listed.Name] = i
	}
	for i, list := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			kind := []grouptree.Kind{grouptree.Regular, grouptree.Init}[i]
			position, listed := positions[name]
			if listed {
				kind = spec[position].Kind
			} else {
				position = len(spec)
			}
			c := newContainer(name, kind, position)
			if c.groups, err = r.parseGroups(c, list[name].Requests); err != nil {
				return fmt.Errorf("cannot serve container %q: %w", name, err)
			}
			c.requested = countedIn(list[name])
			r.containers = append(r.containers, c)
		}
	}
	return nil
}

// countedIn returns how many devices a container counts, in its limits or in the annotation. A
// count that both have is one: the larger one counts.
func countedIn(info types.ContainerInfo) types.ResourceList {
	counted := info.KubeRequests
	for name, quantity := range info.Requests {
		if !podrequest.IsCount(name) || quantity <= counted[name] {
			continue
		}
		if counted = maps.Clone(counted); counted == nil {
			counted = types.ResourceList{}
		}
		counted[name] = quantity
	}
	return counted
}

// containersFor returns the containers that request devices of a node which publishes devices of
// these resources.
func (r *podRequest) containersFor(published map[types.ResourceName]bool) []*container {
	var containers []*container
	for _, c := range r.containers {
		if copied := c.forNode(published); len(copied.total) > 0 {
			containers = append(containers, copied)
		}
	}
	return containers
}

// parseGroups returns the groups that requests form, in the order of their placeholders, and notes
// the excluded devices.
func (r *podRequest) parseGroups(owner *container, requests types.ResourceList) ([]*group, error) {
	groups := map[string]*group{}
	single := map[types.ResourceName]bool{}   // requests for one device; a second spelling of one counts once
	several := map[types.ResourceName]int64{} // requests for several, by name
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		full := resource.WithPrefix(name)
		selected, ok, err := kubeletdevice.ParseSelection(name, requests[name])
		switch device := (deviceID{selected.Resource, selected.ID}); {
		case err != nil:
			return nil, err
		case !ok || single[full]:
			continue
		case selected.Excludes():
			r.excluded[device] = true
			continue
		case selected.Several:
			several[full] = selected.Count
		default:
			single[full] = true
			add(groups, owner, selected.NUMA, item{full, device})
		}
		if r.inGroups += selected.Count; r.inGroups > kubeletdevice.MaxCount {
			return nil, fmt.Errorf("the pod requests more than %d devices by placeholders: request fewer",
				kubeletdevice.MaxCount)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(several)) {
		for i, missing := 0, several[name]; missing > 0; i++ {
			full := name + "/" + types.ResourceName(strconv.Itoa(i)) + "/" + kubeletdevice.Quantity
			if single[full] {
				continue
			}
			extended, numa, _, _ := kubeletdevice.ParseRequest(full)
			add(groups, owner, numa, item{full, deviceID{extended, ""}})
			missing--
		}
	}
	byPlaceholder := func(a, b *group) int { return cmp.Compare(a.placeholder, b.placeholder) }
	return slices.SortedFunc(maps.Values(groups), byPlaceholder), nil
}

// add adds an item to the group of a placeholder.
func add(groups map[string]*group, owner *container, placeholder string, it item) {
	g := groups[placeholder]
	if g == nil {
		g = &group{owner: owner, placeholder: placeholder, open: map[types.ResourceName]int{}}
		groups[placeholder] = g
	}
	g.items = append(g.items, it)
	if it.id == "" {
		g.open[it.resource]++
	}
}

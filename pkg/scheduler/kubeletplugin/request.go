// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	podrequest "github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxPlaceholders bounds the memory that a pod can take. The search takes at most maxDevices.
const maxPlaceholders = 4096

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
		full, quantity := resource.WithPrefix(name), requests[name]
		if extended, numa, id, ok := kubeletdevice.ParseRequest(full); ok {
			id, hasID := strings.CutPrefix(id, byName)
			switch {
			case hasID && id == "" || numa == byName:
				return nil, errNoName(name)
			case hasID && quantity == 0:
				r.excluded[deviceID{extended, id}] = true
				continue
			case quantity != 1:
				return nil, fmt.Errorf("%s is %d: request 1 of it, or several without naming each", name, quantity)
			case single[full]:
				continue
			case !hasID:
				id = ""
			}
			single[full] = true
			r.inGroups++
			add(groups, owner, numa, item{full, deviceID{extended, id}})
		} else if _, numa, _, ok := parseSeveral(full); ok {
			if numa == byName {
				return nil, errNoName(name)
			}
			if quantity < 1 || quantity > maxPlaceholders {
				return nil, fmt.Errorf("%s is %d: request 1 to %d", name, quantity, maxPlaceholders)
			}
			several[full] = quantity
			r.inGroups += quantity
		}
		if r.inGroups > maxPlaceholders {
			return nil, fmt.Errorf("the pod requests more than %d devices by placeholders: request fewer",
				maxPlaceholders)
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

// parseSeveral is kubeletdevice.ParseRequest for a request for any devices of one placeholder,
// whose name ends with the resource.
func parseSeveral(full types.ResourceName) (extended types.ResourceName, numa, device string, ok bool) {
	return kubeletdevice.ParseRequest(full + "/0/" + kubeletdevice.Quantity)
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

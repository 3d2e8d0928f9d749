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
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// byName begins a placeholder that stands for the one instance whose name follows.
const byName = "="

// deviceID names a device within its node. The ID is as it stands in the device's name.
type deviceID struct {
	resource types.ResourceName
	id       string
}

// wanted is what a pod asks of one node's hosted devices.
type wanted struct {
	containers []*container // running ones by name, then init containers by name
	unwanted   map[deviceID]bool
	named      int64 // devices that are asked for by placeholders
}

// nothing reports whether the pod asks for no hosted device.
func (w *wanted) nothing() bool {
	return !slices.ContainsFunc(w.containers, func(c *container) bool { return len(c.groups)+len(c.counts) > 0 })
}

// read returns what the pod asks of a node that hosts these resources.
func read(here map[types.ResourceName]bool, pod *types.PodInfo, spec []grouptree.Container) (*wanted, error) {
	w := &wanted{unwanted: map[deviceID]bool{}}
	rest, err := w.groups(nil, pod.Requests)
	if err != nil {
		return nil, fmt.Errorf("cannot serve the pod: %w", err)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("cannot serve %s for a pod as a whole: write it under one of its containers", rest[0].items[0].request)
	}
	for i, list := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			c := &container{name: name, turn: len(spec)}
			if i == 1 {
				c.kind = grouptree.Init
			}
			if turn := slices.IndexFunc(spec, func(of grouptree.Container) bool { return of.Name == name }); turn >= 0 {
				c.kind, c.turn = spec[turn].Kind, turn
			}
			if c.groups, err = w.groups(c, list[name].Requests); err != nil {
				return nil, fmt.Errorf("cannot serve container %q: %w", name, err)
			}
			c.counts = counts(here, list[name].KubeRequests, c.asks())
			w.containers = append(w.containers, c)
		}
	}
	return w, nil
}

// counts returns how many devices of each resource are counted beyond those that are asked for by placeholders.
func counts(here map[types.ResourceName]bool, counted types.ResourceList, asked map[types.ResourceName]int) map[types.ResourceName]int {
	more := map[types.ResourceName]int{}
	for name, quantity := range counted {
		if missing := int(min(quantity, 1<<40)) - asked[name]; here[name] && missing > 0 {
			more[name] = missing
		}
	}
	return more
}

// groups returns the groups that requests ask for, in the order of their placeholders, and notes what is not wanted.
func (w *wanted) groups(owner *container, requests types.ResourceList) ([]*group, error) {
	byPlaceholder := map[string]*group{}
	taken := map[types.ResourceName]bool{}
	several := map[types.ResourceName]int64{} // by the name without device
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		full := fullName(name)
		quantity := requests[name]
		if resource, numa, id, ok := kubeletdevice.ParseRequest(full); ok {
			id, named := strings.CutPrefix(id, byName)
			switch {
			case named && id == "" || numa == byName:
				return nil, unnamed(name)
			case named && quantity == 0:
				w.unwanted[deviceID{resource, id}] = true
				continue
			case quantity != 1:
				return nil, fmt.Errorf("%s is %d: ask for 1 of it, or for several without naming each", name, quantity)
			case taken[full]:
				continue // the other spelling of the same
			case !named:
				id = ""
			}
			taken[full] = true
			w.named++
			add(byPlaceholder, owner, numa, item{full, resource, id})
		} else if _, numa, _, ok := kubeletdevice.ParseRequest(full + "/0/" + kubeletdevice.Quantity); ok {
			if numa == byName {
				return nil, unnamed(name)
			}
			if quantity < 1 || quantity > grouptree.MaxRequests {
				return nil, fmt.Errorf("%s is %d: ask for 1 to %d", name, quantity, grouptree.MaxRequests)
			}
			several[full] = quantity
			w.named += quantity
		}
		if w.named > grouptree.MaxRequests { // so that nobody can ask for more than there is memory for
			return nil, fmt.Errorf("the pod asks for more than %d devices by placeholders: ask for fewer", grouptree.MaxRequests)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(several)) {
		for i, missing := 0, several[name]; missing > 0; i++ {
			full := name + "/" + types.ResourceName(strconv.Itoa(i)) + "/" + kubeletdevice.Quantity
			if taken[full] {
				continue
			}
			resource, numa, _, _ := kubeletdevice.ParseRequest(full)
			add(byPlaceholder, owner, numa, item{full, resource, ""})
			missing--
		}
	}
	return slices.SortedFunc(maps.Values(byPlaceholder), func(a, b *group) int { return cmp.Compare(a.placeholder, b.placeholder) }), nil
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

// fullName returns a request with resource/group in front.
func fullName(name types.ResourceName) types.ResourceName {
	if strings.HasPrefix(string(name), types.DeviceGroupPrefix+"/") {
		return name
	}
	return types.DeviceGroupPrefix + "/" + name
}

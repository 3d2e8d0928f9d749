// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// choice is a request by which counted devices are to be chosen: an option with a quantity above 0,
// or a device that is excluded. It is for the devices of one plugin, so a node honours it if that
// plugin serves the count there. On all other nodes it would be dropped: where another plugin
// serves the count, or the kubelet. An option with the quantity 0, and one that no plugin has,
// demand nothing.
type choice struct {
	request   types.ResourceName // as it is written
	container string             // that counts the devices
	plain     types.ResourceName // how it counts them
	allocator bool               // the plugin is one
}

// choicesOf returns the choices of a pod.
func (s *Set) choicesOf(content *request.Content) []choice {
	var found []choice
	for _, listed := range content.Containers {
		info := content.Container(listed.Name)
		counted := slices.Clone(content.Counted[listed.Name])
		for name, quantity := range info.Requests {
			if quantity > 0 && s.isCount(name) {
				counted = append(counted, name)
			}
		}
		slices.Sort(counted)
		for _, plain := range slices.Compact(counted) {
			for _, plugin := range s.plugins {
				if plugin.kinds == nil || !plugin.kinds.plain[plain] || content.Waited && plugin.afterWait != nil {
					continue // one that is patient requires nothing for a pod that has waited
				}
				one := max(info.KubeRequests[plain], info.Requests[plain]) == 1
				for _, option := range slices.Sorted(maps.Keys(plugin.kinds.options)) {
					if one && plugin.kinds.topology[option] {
						continue
					}
					if name, quantity := optionIn(option, info.Requests, content.Pod.Requests); quantity > 0 {
						found = append(found, choice{name, listed.Name, plain, plugin.allocator != nil})
					}
				}
			}
			for _, name := range s.excludedFrom(content, plain) {
				found = append(found, choice{name, listed.Name, plain, true})
			}
		}
	}
	return found
}

// choicesByName returns the choices that a pod makes by HAMi's annotations, for the GPUs that its
// containers count.
func choicesByName(r *request.Request) (found []choice) {
	for _, key := range r.Choice.Keys() {
		for _, listed := range r.Containers {
			if slices.Contains(r.Content().Counted[listed.Name], names.GPUs) {
				found = append(found, choice{types.ResourceName(key), listed.Name, names.GPUs, false})
			}
		}
	}
	return found
}

// optionIn returns an option, by its full name, as it is written in the first of the lists that has
// it. Of two forms of one name the full one counts.
func optionIn(option types.ResourceName, lists ...types.ResourceList) (written types.ResourceName, quantity int64) {
	short := types.ResourceName(strings.TrimPrefix(string(option), types.DeviceGroupPrefix+"/"))
	for _, list := range lists {
		for _, name := range []types.ResourceName{option, short} {
			if quantity, ok := list[name]; ok {
				return name, quantity
			}
		}
	}
	return "", 0
}

// excludedFrom returns the requests by which a pod excludes devices of allocators that are counted
// as a plain resource: those of one container hold for all.
func (s *Set) excludedFrom(content *request.Content, plain types.ResourceName) []types.ResourceName {
	found := s.excludedIn(content.Pod.Requests, plain)
	for _, info := range content.Pod.Containers() {
		found = append(found, s.excludedIn(info.Requests, plain)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (s *Set) excludedIn(requests types.ResourceList, plain types.ResourceName) (found []types.ResourceName) {
	for name, quantity := range requests {
		full := resource.WithPrefix(name)
		if _, twice := requests[full]; quantity != 0 || twice && full != name || !request.IsPath(name) {
			continue
		}
		if counted, ok := s.allocatedAs(full); ok && counted == plain {
			found = append(found, name)
		}
	}
	return found
}

// droppedBy says which of the choices a node with this inventory would drop, or "".
func droppedBy(inventory *Inventory, choices []choice) string {
	for _, c := range choices {
		if !inventory.Counts(c.plain) || inventory.allocated[c.plain] != c.allocator {
			return fmt.Sprintf("do not read %s for %s of container %q: leave it out to use them",
				c.request, c.plain, c.container)
		}
	}
	return ""
}

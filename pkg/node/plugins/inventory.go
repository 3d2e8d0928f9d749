// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// enumScorer is the scorer that makes any resource a bit mask, whatever its name; see types.ResourceScorer.
const enumScorer = 2

// Inventory is what all plugins together told at one moment. It is never changed once it is made.
type Inventory struct {
	// Node is the sum. Every extended resource, that is every name in KubeCap, stands in Capacity and Allocatable too.
	Node *types.NodeInfo
	// Complete says that every plugin told what it has, and none was left out when plugins were loaded.
	Complete bool
	// Conflicts are resources that more than one plugin claims, in words. The first plugin keeps them.
	Conflicts []string

	hosts   bool // hosted plugins may come
	asked   bool // every plugin had been asked
	sources []source
	owners  map[types.ResourceName]source
}

// ownersOf returns the plugins that the resources belong to, in the plugins' order.
func (i *Inventory) ownersOf(from types.ResourceLocation) []source {
	owning := map[source]bool{}
	for _, name := range from {
		owning[i.owners[name]] = true
	}
	var owners []source
	for _, s := range i.sources {
		if owning[s] {
			owners = append(owners, s)
		}
	}
	return owners
}

// Allocatable returns how much of the resource pods may be given, and whether some plugin has it at all.
func (i *Inventory) Allocatable(name types.ResourceName) (quantity int64, known bool) {
	_, known = i.owners[name]
	return i.Node.Allocatable[name], known
}

// Room returns how much of the resource all pods together may hold, and whether some plugin has it at all. A mask is held by
// any number of pods.
func (i *Inventory) Room(name types.ResourceName) (quantity int64, known bool) {
	if i.Node.Scorer[name] == enumScorer {
		_, known = i.owners[name]
		return math.MaxInt64, known
	}
	return i.Allocatable(name)
}

// Serves reports whether one of the resources belongs to the plugin that publishes the extended resource.
func (i *Inventory) Serves(extended types.ResourceName, from types.ResourceLocation) bool {
	publisher, published := i.owners[extended]
	return published && slices.Contains(i.ownersOf(from), publisher)
}

// ExtendedResources returns the names of the node's extended resources, sorted.
func (i *Inventory) ExtendedResources() []types.ResourceName {
	return slices.Sorted(maps.Keys(i.Node.KubeCap))
}

// merge adds up the plugins' devices in the plugins' order.
func merge(nodeName string, sources []source, rejected bool) *Inventory {
	sum := &Inventory{
		Node:     types.NewNodeInfoWithName(nodeName),
		Complete: !rejected,
		asked:    true,
		sources:  sources,
		owners:   map[types.ResourceName]source{},
	}
	for _, s := range sources {
		info, asked, err := s.state()
		sum.asked = sum.asked && asked
		if info == nil || err != nil {
			sum.Complete = false
		}
		if info != nil {
			sum.add(s, info)
		}
	}
	return sum
}

func (i *Inventory) add(s source, info *types.NodeInfo) {
	names := map[types.ResourceName]bool{}
	for _, list := range []types.ResourceList{info.Capacity, info.Allocatable, info.KubeCap, info.KubeAlloc} {
		for name := range list {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if owner, taken := i.owners[name]; taken {
			i.Conflicts = append(i.Conflicts, fmt.Sprintf("%s: claimed by device plugins %q and %q, counted for the first", name, owner.label(), s.label()))
			continue
		}
		i.owners[name] = s
		copyEntry(i.Node.Capacity, info.Capacity, name)
		copyEntry(i.Node.Allocatable, info.Allocatable, name)
		copyEntry(i.Node.Used, info.Used, name)
		copyEntry(i.Node.Scorer, info.Scorer, name)
		if _, extended := info.KubeCap[name]; !extended {
			continue
		}
		copyEntry(i.Node.KubeCap, info.KubeCap, name)
		copyEntry(i.Node.Capacity, info.KubeCap, name)
		allocatable := info.KubeAlloc
		if _, told := allocatable[name]; !told {
			allocatable = info.KubeCap
		}
		copyEntry(i.Node.KubeAlloc, allocatable, name)
		copyEntry(i.Node.Allocatable, allocatable, name)
	}
}

func copyEntry[V any, M ~map[types.ResourceName]V](to, from M, name types.ResourceName) {
	if value, ok := from[name]; ok {
		to[name] = value
	}
}

// checkExtended checks that Kubernetes takes the plain counts as extended resources.
func checkExtended(info *types.NodeInfo) error {
	for _, list := range []types.ResourceList{info.KubeCap, info.KubeAlloc} {
		for name, quantity := range list {
			domain, _, qualified := strings.Cut(string(name), "/")
			native := domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasPrefix(domain, "requests.")
			if !qualified || native || len(validation.IsQualifiedName("requests."+string(name))) > 0 {
				return fmt.Errorf("resource %q is no name for an extended resource: it must be like vendor.com/device", name)
			}
			if quantity < 0 {
				return fmt.Errorf("resource %q has the negative quantity %d", name, quantity)
			}
		}
	}
	return nil
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grants is the node's record of which pod holds which device.
//
// The first decision that the node acts on for a pod is pinned: whatever the pod's annotation says later, the pod's
// containers get the same devices again. What a pod holds counts until the pod is really gone, that is until the runtime has
// neither a sandbox of it that is ready nor a container of it that runs, and the API server does not have it either, or has it
// as succeeded or failed. So a device that one pod uses up is never given to a second one that lives at the same time, whatever
// schedulers and annotations say. A device is known by its lowest level, its ID and the resource when the path above it has
// changed.
//
// The record is a file, replaced in one step and checked by a sum. It is not the only copy: every container that was given
// devices carries its pod's decision as an annotation in the runtime, where no user can write, and the record is completed
// from there before the first grant after a start. So a file that is lost or damaged costs no more than the order of init
// containers: a pod is then taken to hold the most that it might.
package grants

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Annotation is the key under which a container in the runtime carries its pod's decision, as package deviceinfo writes it.
const Annotation = "KubeDevice/Grant"

// Grant is what one pod was given on this node.
type Grant struct {
	// PodUID identifies the pod; namespace and name are for people.
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Since is when the decision was pinned.
	Since time.Time `json:"since"`
	// InitOrder are the pod's init containers, sidecars included, in the order in which they start. It is empty in a grant that
	// an earlier release wrote, and in one that came back from the runtime.
	InitOrder []string `json:"initOrder,omitempty"`
	// Decision is the pod's allocation as the scheduler made it. It must not be changed.
	Decision *types.PodInfo `json:"decision"`
	// Answers are kept along with the decision; see Record.Keep. A grant that an earlier release wrote, and one that came back
	// from the runtime, has none. They must not be changed.
	Answers Answers `json:"answers,omitempty"`
	// Boot names the boot of the machine in which all of Answers were given; see Boot, the function. Without it they count for
	// no boot: the release that wrote them knew of none.
	Boot string `json:"boot,omitempty"`
}

// Pod returns the pod's name for people.
func (g *Grant) Pod() string { return g.Namespace + "/" + g.Name }

// Holds returns what the pod holds of each of the node's resources at most while it runs, by the scheduler's formula. Masks of
// enum resources are not quantities and are left out.
func (g *Grant) Holds() types.ResourceList { return grouptree.Holdings(g.Decision, g.startOrder()) }

// startOrder returns the pod's containers in the order in which they start, as far as that matters to what it holds. Where
// the order is not known, all containers that run along with others are said to start first: that is never too little.
func (g *Grant) startOrder() []grouptree.Container {
	for name := range g.Decision.InitContainers {
		if !slices.Contains(g.InitOrder, name) {
			return sidecars(slices.Sorted(maps.Keys(g.Decision.RunningContainers)))
		}
	}
	order := sidecars(g.InitOrder)
	for i := range order {
		if _, runsAlone := g.Decision.InitContainers[order[i].Name]; runsAlone {
			order[i].Kind = grouptree.Init
		}
	}
	return order
}

func sidecars(names []string) []grouptree.Container {
	containers := make([]grouptree.Container, 0, len(names))
	for _, name := range names {
		containers = append(containers, grouptree.Container{Name: name, Kind: grouptree.Sidecar})
	}
	return containers
}

// sorted returns the grants in the order in which people read them.
func sorted(grants map[string]*Grant) []Grant {
	list := make([]Grant, 0, len(grants))
	for _, g := range grants {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.PodUID, b.PodUID))
	})
	return list
}

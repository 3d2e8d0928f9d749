// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func (h *schedulerPlugin) checkPure() error {
	pure, ok := h.plugin.(devicescheduler.Pure)
	if !ok || !pure.Pure() {
		return notApplicable("it does not say that it is Pure")
	}
	return h.eachServed(func(node *types.NodeInfo, s sample, _ *types.PodInfo) error {
		otherNode, otherPod := node.Clone(), s.pod.Clone()
		otherNode.Name, otherPod.Name = "another-node", "another-pod"
		if err := h.sameAnswers(node, s.pod, otherNode, otherPod); err != nil {
			return fmt.Errorf("with other names of pod and node, %w", err)
		}
		before, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		if _, err := h.add(larger(h.node)); err != nil {
			return err
		}
		after, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		if err := sameRequests(before.pod, after.pod); err != nil || before.fits != after.fits {
			return fmt.Errorf("when another node has been reported, it fits %v, then %v (%v)", before.fits,
				after.fits, err)
		}
		return h.call("RemoveNode", func() error { h.plugin.RemoveNode(largerNode); return nil })
	})
}

// largerNode is the name of the node of larger.
const largerNode = "larger-node"

// larger returns a node with twice the devices, in other groups.
func larger(node *types.NodeInfo) *types.NodeInfo {
	other := node.Clone()
	other.Name = largerNode
	for _, one := range devices(node) {
		twin := one.renamed(one.path[strings.LastIndexByte(one.path, '/')+1:] + "-twin")
		for name, quantity := range twin.resources {
			other.Capacity[name], other.Allocatable[name] = quantity, quantity
		}
	}
	for name, quantity := range node.KubeAlloc {
		for _, list := range []types.ResourceList{other.Capacity, other.Allocatable, other.KubeCap, other.KubeAlloc} {
			list[name] = 2 * quantity
		}
	}
	return other
}

func (h *schedulerPlugin) checkTranslator() error {
	translator, ok := h.plugin.(devicescheduler.Translator)
	if !ok || !h.plugin.UsingGroupScheduler() {
		return notApplicable("it is no Translator that uses the group scheduler")
	}
	return h.eachServed(func(node *types.NodeInfo, s sample, allocated *types.PodInfo) error {
		full := node.Clone()
		full.Used = maps.Clone(node.Allocatable)
		if err := h.sameAnswers(node, s.pod, full, s.pod); err != nil {
			return fmt.Errorf("when all devices are used, %w", err)
		}
		empty, used := node.Clone(), full.Clone()
		if err := errors.Join(h.take(empty, allocated), h.take(used, allocated)); err != nil {
			return err
		}
		for name, quantity := range full.Used {
			used.Used[name] -= quantity
		}
		if err := sameList(withoutZeros(empty.Used), withoutZeros(used.Used)); err != nil {
			return fmt.Errorf("what TakePodResources adds depends on what is used: %w", err)
		}

		before, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		revision := translator.Revision()
		if _, err := h.add(larger(h.node)); err != nil {
			return err
		}
		after, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		grown := translator.Revision()
		if grown < revision {
			return fmt.Errorf("Revision falls from %d to %d", revision, grown)
		}
		if difference := sameRequests(before.pod, after.pod); grown == revision &&
			(difference != nil || before.fits != after.fits) {
			return fmt.Errorf("when another node has been reported, the requests are others and Revision is "+
				"still %d: %v",
				revision, difference)
		}
		return h.call("RemoveNode", func() error { h.plugin.RemoveNode(largerNode); return nil })
	})
}

func (h *schedulerPlugin) checkAfterWait() error {
	patient, ok := h.plugin.(devicescheduler.Patient)
	if !ok {
		return notApplicable("it is not Patient")
	}
	return h.checkOther(patient.AfterWait())
}

func (h *schedulerPlugin) checkPreferring() error {
	preferring, ok := h.plugin.(devicescheduler.Preferring)
	if !ok {
		return notApplicable("it is not Preferring")
	}
	scheduler := preferring.Preferring()
	if _, ok := scheduler.(devicescheduler.Refiner); !ok {
		return errors.New("what Preferring returns has no method Refine")
	}
	return h.checkOther(scheduler)
}

// checkOther checks another scheduler that the plugin returns for some pods.
func (h *schedulerPlugin) checkOther(scheduler devicescheduler.DeviceScheduler) error {
	other := *h
	other.answering = scheduler
	for _, name := range []string{fitsCheck, "score", "writes", "same", placesCheck, "capacity"} {
		c, _ := find(schedulerChecks(), name)
		if err := c.run(&other); err != nil {
			return fmt.Errorf("in the check %s, %w", name, err)
		}
	}
	return nil
}

func (h *schedulerPlugin) checkObserver() error {
	observer, ok := h.plugin.(devicescheduler.PodObserver)
	if !ok {
		return notApplicable("it is no PodObserver")
	}
	return h.eachServed(func(_ *types.NodeInfo, _ sample, allocated *types.PodInfo) error {
		holds := func(uid string, pod *types.PodInfo) error {
			allocated := pod.Clone()
			return h.call("PodHolds", func() error { observer.PodHolds(nodeName, uid, allocated); return nil })
		}
		gone := func(uid string) error {
			return h.call("PodGone", func() error { observer.PodGone(nodeName, uid); return nil })
		}
		return errors.Join(gone("never-there"), holds("uid-1", allocated), holds("uid-2", types.NewPodInfo()),
			gone("uid-1"), gone("uid-2"))
	})
}

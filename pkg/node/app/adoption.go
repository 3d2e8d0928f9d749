// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// adoptable returns what the kubelet gave to pods of resources that have moved here.
func (n *node) adoptable() (grants.Adoptable, error) {
	given, kubelets, err := n.deviceManager.Given()
	if err != nil {
		return grants.Adoptable{}, err
	}
	return grants.Adoptable{
		Kubelets: kubelets, Pods: adoptablePods(given, n.options.NodeName, n.registry.Get, n.registry.Check() == nil),
	}, nil
}

// adoptablePods returns the pods that the kubelet gave something to, by UID. all says that get
// knows all pods of the node.
func adoptablePods(
	given []devicemanager.Given, nodeName string, get func(uid string) (pods.Pod, bool), all bool,
) []grants.AdoptablePod {
	found := map[string]*grants.AdoptablePod{}
	for _, g := range given {
		spec, listed := get(g.PodUID)
		pod := found[g.PodUID]
		if pod == nil {
			info := types.NewPodInfo()
			info.Name, info.NodeName = spec.Name, nodeName
			pod = &grants.AdoptablePod{Listed: listed, Gone: all && !listed, Allocation: grants.Allocation{
				PodUID: g.PodUID, Namespace: spec.Namespace, Name: spec.Name, InitOrder: spec.InitOrder(),
				Adopted: true, PodInfo: info,
			}}
			found[g.PodUID] = pod
		}
		containers := pod.PodInfo.RunningContainers
		for _, container := range spec.Containers {
			if container.Name == g.Container && container.Init && !container.Always {
				containers = pod.PodInfo.InitContainers
			}
		}
		devices := g.Devices
		for name := range containers[g.Container].AllocateFrom {
			devices = append(devices, name) // of another resource
		}
		containers[g.Container] = grants.AdoptedContainer(devices)
	}
	var list []grants.AdoptablePod
	for _, uid := range slices.Sorted(maps.Keys(found)) {
		list = append(list, *found[uid])
	}
	return list
}

// adopt is devicemanager.Options.Adopt.
func (n *node) adopt(ctx context.Context) (withheld map[types.ResourceName]string, err error) {
	// What cannot be written is known all the same; the file is tried again.
	if err := n.record.Reconcile(ctx); err != nil && !n.record.IsUnsaved() {
		return nil, err
	}
	return n.record.Withheld(), n.awaitHolders(ctx)
}

// awaitHolders waits until the holders that the node reports have the adopted pods: only then the
// scheduler can know that their devices are not free.
func (n *node) awaitHolders(ctx context.Context) error {
	for {
		reported, known, changed := n.holders.Holders()
		missing := slices.ContainsFunc(n.record.List(), func(a grants.Allocation) bool {
			isOf := func(h deviceinfo.Holder) bool { return string(h.UID) == a.PodUID }
			return a.Adopted && n.registry.Active(a.PodUID) && !slices.ContainsFunc(reported, isOf)
		})
		if known && !missing {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("report the pods that hold devices which the kubelet gave them: %w", ctx.Err())
		}
	}
}

// granted returns the devices that pods hold by an allocation of the scheduler.
func (n *node) granted() map[types.ResourceName]bool {
	held := map[types.ResourceName]bool{}
	for _, allocation := range n.record.List() {
		if !allocation.Adopted {
			for name := range allocation.Holds() {
				held[name] = true
			}
		}
	}
	return held
}

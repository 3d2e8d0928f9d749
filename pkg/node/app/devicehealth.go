// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceHealth warns pods whose devices become unhealthy. It does not touch the containers: the
// pod's owner decides whether they can go on. It belongs to one goroutine.
type deviceHealth struct {
	grants func() []grants.Allocation
	warn   func(pod *corev1.ObjectReference, message string)

	warned map[string]bool // messages of the last check, by pod
}

// check warns each pod once of each unhealthy device, and again if the device was healthy in
// between. unhealthy returns what is wrong with a device, or nothing.
func (h *deviceHealth) check(unhealthy func(types.ResourceName) string) {
	warned := map[string]bool{}
	for _, grant := range h.grants() {
		pod := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: grant.Namespace, Name: grant.Name,
			UID: apitypes.UID(grant.PodUID),
		}
		for _, message := range warningsOf(grant.PodInfo, unhealthy) {
			key := grant.PodUID + "/" + message
			if !warned[key] && !h.warned[key] {
				h.warn(pod, message)
			}
			warned[key] = true
		}
	}
	h.warned = warned
}

// warningsOf returns a message for each container and unhealthy device of it, sorted.
func warningsOf(pod *types.PodInfo, unhealthy func(types.ResourceName) string) []string {
	messages := map[string]bool{}
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, container := range containers {
			for _, device := range container.AllocateFrom {
				if wrong := unhealthy(device); wrong != "" {
					messages[fmt.Sprintf("%s, which container %q holds, %s; the container is left alone",
						deviceText(device), name, wrong)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(messages))
}

// deviceText names the device that a resource belongs to.
func deviceText(name types.ResourceName) string {
	if d, ok := kubeletdevice.Parse(name); ok {
		return fmt.Sprintf("device %s of %s", d.ID, d.Resource)
	}
	return "device " + path.Dir(string(name))
}

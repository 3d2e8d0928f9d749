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

// ailments tells pods of devices that turn bad in their hands. The containers are left alone: whether they can go on is for
// the pod's owner to say. It belongs to one goroutine.
type ailments struct {
	grants func() []grants.Allocation
	tell   func(pod *corev1.ObjectReference, message string)

	told map[string]bool // messages about what was bad at the last look, by pod
}

// look tells each pod once of each device that ails, by what is wrong with it in words, and again if it was well in between.
func (a *ailments) look(ailing func(types.ResourceName) string) {
	told := map[string]bool{}
	for _, grant := range a.grants() {
		pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: grant.Namespace, Name: grant.Name, UID: apitypes.UID(grant.PodUID)}
		for _, message := range ailmentsOf(grant.PodInfo, ailing) {
			key := grant.PodUID + "/" + message
			if !told[key] && !a.told[key] {
				a.tell(pod, message)
			}
			told[key] = true
		}
	}
	a.told = told
}

// ailmentsOf returns a message for each container and device of it that ails, sorted.
func ailmentsOf(pod *types.PodInfo, ailing func(types.ResourceName) string) []string {
	messages := map[string]bool{}
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, container := range containers {
			for _, device := range container.AllocateFrom {
				if wrong := ailing(device); wrong != "" {
					messages[fmt.Sprintf("%s, which container %q holds, %s; the container is left alone", deviceText(device), name, wrong)] = true
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

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"maps"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// Pods knows the pods of this node by UID. *pods.Registry implements it.
type Pods interface {
	// Get returns the data of the pod.
	Get(podUID string) (pod pods.Pod, known bool)
	// Active reports whether the API server has the pod and the pod has not terminated.
	Active(podUID string) bool
	// Current returns the pods that the API server has, by UID; whether it has listed all; and a
	// channel that is closed when any of this changes.
	Current() (current map[string]pods.Pod, complete bool, changed <-chan struct{})
}

// podName identifies a pod in the API.
type podName struct{ namespace, name string }

// holdings are the devices that pods hold now, and those that pods without a grant claim.
type holdings struct {
	grants  map[podName]grants.Allocation
	devices Devices
}

// newHoldings selects for each name the grant of the pod that has the name now: a pod that the API
// server has, or else an unknown pod, as after a start during an outage of the API server.
func newHoldings(all []grants.Allocation, known Pods, devices Devices) holdings {
	h := holdings{grants: map[podName]grants.Allocation{}, devices: devices}
	for _, grant := range all {
		name := podName{grant.Namespace, grant.Name}
		_, taken := h.grants[name]
		if known.Active(grant.PodUID) {
			h.grants[name] = grant
		} else if _, isKnown := known.Get(grant.PodUID); !isKnown && !taken {
			h.grants[name] = grant
		}
	}
	return h
}

// deviceList returns the devices of a container that runs along with others.
func (h holdings) deviceList(pod podName, container string) []Device {
	grant, ok := h.grants[pod]
	if !ok {
		return nil
	}
	return h.devices.ForResources(maps.Values(grant.PodInfo.RunningContainers[container].AllocateFrom))
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// preferring is the scheduler of a cluster in which counts prefer topology. A count that prefers it
// is translated to that many GPUs anywhere: so it fits where that many are free. Refine then
// narrows it.
type preferring struct {
	*Scheduler
	mode modeFunc
}

var _ devicescheduler.Refiner = preferring{}

// Preferring returns the scheduler in which a count prefers topology where nothing is written.
func (s *Scheduler) Preferring() devicescheduler.DeviceScheduler { return preferring{s, prefers} }

// AfterWait returns the scheduler for pods that no longer wait for the topology that they require,
// and prefer it.
func (s *Scheduler) AfterWait() devicescheduler.DeviceScheduler {
	return preferring{s, prefersAfterWait}
}

// PodFitsDevice is that of Scheduler, in a cluster that prefers topology.
func (p preferring) PodFitsDevice(
	nodeInfo *types.NodeInfo, podInfo *types.PodInfo, _ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	return p.fits(p.PodAllocate(nodeInfo, podInfo))
}

// PodAllocate translates the pod's requests.
func (p preferring) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	return p.translate(nodeInfo, podInfo, p.mode)
}

// Refine gives each container that counts several GPUs and prefers topology the best-connected ones
// that are free: the containers that run one after another, the largest first, since they hold
// theirs at the same time; each init container of all that are free, since it shares those of the
// others. The quality is the mean over these containers, and 0 for one on a node that has only
// instances, which are not connected.
func (p preferring) Refine(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) (quality float64, prefers bool) {
	free := freeOf(nodeInfo)
	left, n := free, 0
	for _, name := range p.bySize(podInfo.RunningContainers) {
		if container := podInfo.RunningContainers[name]; p.refines(podInfo, &container) {
			var taken topology
			taken, left = left.take(int(p.counts(&container)))
			quality += narrow(&container, int(p.counts(&container)), taken)
			podInfo.RunningContainers[name] = container
			n++
		}
	}
	for name, container := range podInfo.InitContainers {
		if p.refines(podInfo, &container) {
			taken, _ := free.take(int(p.counts(&container)))
			quality += narrow(&container, int(p.counts(&container)), taken)
			podInfo.InitContainers[name] = container
			n++
		}
	}
	return quality / float64(max(1, n)), n > 0
}

// bySize returns the names of containers by the number of GPUs that they count, the largest first.
func (p preferring) bySize(containers map[string]types.ContainerInfo) []string {
	names := slices.Sorted(maps.Keys(containers))
	slices.SortStableFunc(names, func(a, b string) int {
		first, second := containers[a], containers[b]
		return descending(int(p.counts(&first)), int(p.counts(&second)))
	})
	return names
}

// refines reports whether a container prefers topology for several GPUs, and names none itself.
func (p preferring) refines(pod *types.PodInfo, container *types.ContainerInfo) bool {
	mode, err := p.mode(pod, container)
	if err != nil || mode != preferred || p.counts(container) < 2 {
		return false
	}
	for name := range container.Requests {
		if _, ok := devicePath(name); ok {
			return false
		}
	}
	return true
}

// narrow puts requests for a topology in the place of those for n GPUs anywhere, and returns its
// quality. It changes nothing and returns 0 if there is none, or if the container's requests are
// others: those of another plugin, or for instances.
func narrow(container *types.ContainerInfo, n int, taken topology) float64 {
	flat := types.ResourceList{}
	addCounted(flat, n, func(int) topology { return nil })
	requests := maps.Clone(container.DevRequests)
	for _, name := range lift(flat) {
		if taken == nil || requests[name] != 1 {
			return 0
		}
		delete(requests, name)
	}
	taken.addTo(requests)
	container.DevRequests = requests
	return taken.quality()
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// translation is a request with what the plugins so far wrote into its containers. What is cached
// of it serves all pods of equal key. It is immutable and safe for concurrent use.
type translation struct {
	*request.Content

	// alone says that an allocator translated it: it names devices of one node, and is like no
	// other translation.
	alone     bool
	once      sync.Once
	remainder atomic.Pointer[remainder]

	sized     func() int
	counting  sync.Once
	counted   []types.ResourceName // see counts
	concerned sync.Map             // whether it has to do with kinds of devices, by the kinds
	read      sync.Map             // PodDevices, by the handle of the allocator that has read it
}

// concerns reports whether the request has to do with these kinds of devices. It is found out once:
// a request has up to thousands of names to look at, and each node asks.
func (t *translation) concerns(kinds *kinds) bool {
	if known, ok := t.concerned.Load(kinds); ok {
		return known.(bool)
	}
	concerned := kinds.mayConcern(t.Pod)
	t.concerned.Store(kinds, concerned)
	return concerned
}

func newTranslation(content *request.Content) *translation {
	return &translation{Content: content, sized: sync.OnceValue(func() int { return sizeOf(content) })}
}

// counts returns the extended resources that containers count, in their limits or in the
// annotation. What plugins do with the counts does not change it.
func (t *translation) counts() []types.ResourceName {
	t.counting.Do(func() { t.counted = countsOf(t.Content) })
	return t.counted
}

func countsOf(content *request.Content) []types.ResourceName {
	counted := map[types.ResourceName]bool{}
	for name, info := range content.Pod.Containers() {
		for _, plain := range content.Counted[name] {
			counted[plain] = true
		}
		for requested := range info.Requests {
			if request.IsCount(requested) {
				counted[requested] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(counted))
}

// made returns how many device requests plugins have made.
func (t *translation) made() int {
	made := 0
	for _, info := range t.Pod.Containers() {
		made += len(info.DevRequests)
	}
	return made
}

// serves reports whether plugins have made a device request.
func (t *translation) serves() bool {
	for _, info := range t.Pod.Containers() {
		if len(info.DevRequests)+len(info.AllocateFrom) > 0 {
			return true
		}
	}
	return false
}

// size returns how many containers the pod has, and how many names they request.
func (t *translation) size() int { return t.sized() }

func sizeOf(content *request.Content) int {
	size := len(content.Pod.Requests)
	for name, info := range content.Pod.Containers() {
		size += 1 + len(info.Requests) + len(info.Scorer) + len(content.Counted[name])
	}
	return size
}

// remainder is what is left to do when all plugins have translated a request. It is immutable.
type remainder struct {
	// unserved says what no plugin serves, or "".
	unserved string
	// noDevices says that nothing of the request is for a device on the node.
	noDevices bool
	// request is what the group scheduler places. It is nil when there is nothing to place.
	request *grouptree.Request
	// err says why the group scheduler cannot read what plugins wrote.
	err error
}

// named returns a copy for a pod, and for the node on which it is to run, if that is known.
func (t *translation) named(pod, node string) *types.PodInfo {
	named := t.Pod.Clone()
	named.Name, named.NodeName = pod, node
	return named
}

// adopt returns the translation with what a plugin may write, and wrote into the copy that it was
// given: DevRequests, AllocateFrom and scorers; an allocator may also remove counts. The plugin may
// keep its copy, so nothing of that is kept here.
func (t *translation) adopt(passed *types.PodInfo, allocator bool) *translation {
	pod := *t.Pod
	pod.RunningContainers = adoptContainers(pod.RunningContainers, passed.RunningContainers, allocator)
	pod.InitContainers = adoptContainers(pod.InitContainers, passed.InitContainers, allocator)
	adopted := newTranslation(t.With(pod))
	adopted.alone = t.alone || allocator
	return adopted
}

func adoptContainers(containers, passed map[string]types.ContainerInfo, allocator bool) map[string]types.ContainerInfo {
	adopted := maps.Clone(containers)
	for name, info := range adopted {
		info.DevRequests = maps.Clone(passed[name].DevRequests)
		info.AllocateFrom = maps.Clone(passed[name].AllocateFrom)
		info.Scorer = maps.Clone(passed[name].Scorer)
		if left := passed[name].KubeRequests; allocator && len(left) < len(info.KubeRequests) {
			info.KubeRequests = maps.Clone(info.KubeRequests)
			maps.DeleteFunc(info.KubeRequests, func(counted types.ResourceName, _ int64) bool {
				_, kept := left[counted]
				return !kept
			})
		}
		adopted[name] = info
	}
	return adopted
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"
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
	alone bool
	once  sync.Once
	rest  atomic.Pointer[rest]

	sized     func() int
	concerned sync.Map // whether it has to do with kinds of devices, by the kinds
	read      sync.Map // PodDevices, by the allocator that has read it
}

// readBy returns what an allocator has read of the request. It is part of the calls of the
// allocator, the first of which has it read.
func (t *translation) readBy(h *handle) PodDevices {
	if known, ok := t.read.Load(h); ok {
		return known
	}
	read := h.allocator.ReadPod(t.Pod, t.Containers)
	t.read.Store(h, read)
	return read
}

// concerns reports whether the request has to do with these kinds of devices. It is found out once:
// a request has up to thousands of names to look at, and each node asks.
func (t *translation) concerns(kinds *kinds) bool {
	if known, ok := t.concerned.Load(kinds); ok {
		return known.(bool)
	}
	concerned := kinds.concern(t.Pod)
	t.concerned.Store(kinds, concerned)
	return concerned
}

func newTranslation(content *request.Content) *translation {
	return &translation{Content: content, sized: sync.OnceValue(func() int { return sizeOf(content) })}
}

// made returns how many device requests plugins have made.
func (t *translation) made() int {
	made := 0
	for _, info := range t.Pod.Containers() {
		made += len(info.DevRequests)
	}
	return made
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

// rest is what is left to do when all plugins have translated a request. It is immutable.
type rest struct {
	// unserved says what no plugin serves, or "".
	unserved string
	// request is what the group scheduler places. It is nil when there is nothing to place.
	request *grouptree.Request
	// err says why the group scheduler cannot read what plugins wrote.
	err error
}

// rest returns what is left to do of a request that all plugins have translated.
func (s *Set) rest(t *translation) *rest {
	t.once.Do(func() {
		known, ok := s.knownRest(t)
		if !ok {
			known = &rest{unserved: t.unserved(s.isAllocated)}
			if known.unserved == "" && s.usesGroups(t.Pod) {
				known.request, known.err = grouptree.CompileRequest(t.Pod, t.Containers)
			}
			if !t.alone {
				s.rests.Add(t.Key(), known)
			}
		}
		t.rest.Store(known)
	})
	return t.rest.Load()
}

// knownRest returns what is left of a translation, if that is known.
func (s *Set) knownRest(t *translation) (known *rest, ok bool) {
	if known = t.rest.Load(); known != nil || t.alone {
		return known, known != nil
	}
	return s.rests.Get(t.Key())
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
func (t *translation) adopt(given *types.PodInfo, allocator bool) *translation {
	pod := *t.Pod
	pod.RunningContainers = adoptContainers(pod.RunningContainers, given.RunningContainers, allocator)
	pod.InitContainers = adoptContainers(pod.InitContainers, given.InitContainers, allocator)
	adopted := newTranslation(t.With(pod))
	adopted.alone = t.alone || allocator
	return adopted
}

func adoptContainers(containers, given map[string]types.ContainerInfo, allocator bool) map[string]types.ContainerInfo {
	adopted := maps.Clone(containers)
	for name, info := range adopted {
		info.DevRequests = maps.Clone(given[name].DevRequests)
		info.AllocateFrom = maps.Clone(given[name].AllocateFrom)
		info.Scorer = maps.Clone(given[name].Scorer)
		if left := given[name].KubeRequests; allocator && len(left) < len(info.KubeRequests) {
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

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxTranslations is how many ways of translating one request are remembered. Plugins translate alike for nodes that
// are built alike, and a cluster has few kinds of nodes.
const maxTranslations = 8

// translation is a request as the plugins translated it for some node, compiled for the group scheduler.
type translation struct {
	pod     *types.PodInfo
	request *grouptree.Request
	reasons *sync.Map // of *grouptree.Reason, by the *grouptree.Placement that they explain
}

// TakeOver makes use of what was compiled of a request that asks for the same: see Digest. It does not take over the reasons,
// which would be more and more.
func (r *Request) TakeOver(other *Request) {
	known := other.translations.Load()
	if known == nil {
		return
	}
	list := slices.Clone(*known)
	for i := range list {
		list[i].reasons = &sync.Map{}
	}
	r.translations.Store(&list)
}

// compile returns the compiled form of the request as translated in pod.
func (r *Request) compile(pod *types.PodInfo) (translation, error) {
	known := r.translations.Load()
	if known != nil {
		for _, t := range *known {
			if t.pod == pod || sameDevices(t.pod, pod) {
				return t, nil
			}
		}
	}
	request, err := grouptree.CompileRequest(pod, r.Containers)
	if err != nil {
		return translation{}, err
	}
	compiled := translation{pod, request, &sync.Map{}}
	var list []translation
	if known != nil {
		list = *known
	}
	if len(list) < maxTranslations {
		next := append(slices.Clip(list), compiled)
		r.translations.CompareAndSwap(known, &next) // of two at once, one is forgotten
	}
	return compiled, nil
}

// sameDevices reports whether two translations of one request ask for the same.
func sameDevices(a, b *types.PodInfo) bool {
	same := func(a, b types.ContainerInfo) bool {
		return maps.Equal(a.DevRequests, b.DevRequests) && maps.Equal(a.AllocateFrom, b.AllocateFrom) && maps.Equal(a.Scorer, b.Scorer)
	}
	return maps.EqualFunc(a.RunningContainers, b.RunningContainers, same) && maps.EqualFunc(a.InitContainers, b.InitContainers, same)
}

// adopt returns pod with what a plugin may write, and wrote into the copy that it was given: DevRequests, AllocateFrom,
// and the scorers of what it translated, and without the counts that are served so. The plugin may hold on to its copy, so nothing
// of that is kept.
func adopt(pod, given *types.PodInfo) *types.PodInfo {
	adopted := *pod
	adopted.RunningContainers = adoptContainers(pod.RunningContainers, given.RunningContainers)
	adopted.InitContainers = adoptContainers(pod.InitContainers, given.InitContainers)
	return &adopted
}

func adoptContainers(containers, given map[string]types.ContainerInfo) map[string]types.ContainerInfo {
	adopted := maps.Clone(containers)
	for name, info := range adopted {
		info.DevRequests = maps.Clone(given[name].DevRequests)
		info.AllocateFrom = maps.Clone(given[name].AllocateFrom)
		info.Scorer = maps.Clone(given[name].Scorer)
		info.KubeRequests = unhosted(info)
		adopted[name] = info
	}
	return adopted
}

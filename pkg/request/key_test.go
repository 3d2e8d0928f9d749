// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// counting returns the request of a pod whose one container counts this many GPUs.
func counting(count int64) *Request {
	return &Request{
		Pod: &types.PodInfo{Name: "p", RunningContainers: map[string]types.ContainerInfo{
			"main": {KubeRequests: types.ResourceList{"nvidia.com/gpu": count}},
		}},
		Containers: []grouptree.Container{{Name: "main"}},
	}
}

func TestEachPartOfWhatAPodRequestsChangesItsKey(t *testing.T) {
	type change = func(*Request)
	container := func(f func(*types.ContainerInfo)) change {
		return func(r *Request) {
			info := r.Pod.RunningContainers["main"]
			f(&info)
			r.Pod.RunningContainers["main"] = info
		}
	}
	memory := types.ResourceName("gpu/0/memory")
	keys := map[Key]string{counting(1).Key(): "one GPU"}
	for name, change := range map[string]change{
		"another count": container(func(c *types.ContainerInfo) { c.KubeRequests["nvidia.com/gpu"] = 2 }),
		"a count more":  container(func(c *types.ContainerInfo) { c.KubeRequests["cpu"] = 1 }),
		"a request": container(
			func(c *types.ContainerInfo) { c.Requests = types.ResourceList{memory: 1} }),
		"a scorer": container(
			func(c *types.ContainerInfo) { c.Scorer = types.ResourceScorer{memory: 1} }),
		"a request of the pod": func(r *Request) { r.Pod.Requests = types.ResourceList{"gpu/0/memory": 1} },
		"a sidecar":            func(r *Request) { r.Containers[0].Kind = grouptree.Sidecar },
		"another container": func(r *Request) {
			r.Containers = append(r.Containers, grouptree.Container{Name: "web"})
			r.Pod.RunningContainers["web"] = types.ContainerInfo{}
		},
		"another order": func(r *Request) {
			r.Containers = []grouptree.Container{{Name: "web"}, {Name: "main"}}
			r.Pod.RunningContainers["web"] = types.ContainerInfo{}
		},
		"an init container": func(r *Request) {
			r.Pod.InitContainers, r.Pod.RunningContainers = r.Pod.RunningContainers, nil
		},
	} {
		changed := counting(1)
		change(changed)
		if other, known := keys[changed.Key()]; known {
			t.Errorf("%s: the key is that of %s", name, other)
		}
		keys[changed.Key()] = name
	}
	again := counting(1)
	again.Pod.Name = "another"
	if again.Key() != counting(1).Key() {
		t.Error("the name of a pod changes its key")
	}
}

func TestAPodThatHasWaitedHasAnotherKey(t *testing.T) {
	pod := counting(1)
	after := pod.AfterWait()
	if !after.Waited || after.Key() == pod.Key() || after != pod.AfterWait() || after != after.AfterWait() {
		t.Errorf("after the wait: %+v", after)
	}
}

func TestMemosAreComputedOnce(t *testing.T) {
	derived := 0
	derive := func(*Request) any { derived++; return derived }
	pod := counting(1)
	if first, second := pod.Memo(derive), pod.Memo(derive); first != 1 || second != 1 {
		t.Errorf("derived %v, then %v", first, second)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

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
	keys := map[RequestKey]string{asking(1).Key(): "one GPU"}
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
		request := asking(1)
		change(request)
		if other, known := keys[request.Key()]; known {
			t.Errorf("%s: the key is that of %s", name, other)
		}
		keys[request.Key()] = name
	}
	again := asking(1)
	again.Pod.Name = "another"
	if again.Key() != asking(1).Key() {
		t.Error("the name of a pod changes its key")
	}
}

func TestANewEraBeginsWhenAPluginTranslatesOtherwise(t *testing.T) {
	plugin := &translator{fake: gpus()}
	s := set(t, clock.RealClock{}, plugin, pure{gpus()})
	before, ok := s.Era()
	if !ok {
		t.Fatal("answers that may be remembered have no era")
	}
	plugin.revision.Add(1)
	nodeLike(t, s, "n", 1, 0)
	if after, ok := s.Era(); !ok || after == before {
		t.Errorf("era %d, %t, as before", after, ok)
	}
	if _, ok := set(t, clock.RealClock{}, plugin, gpus()).Era(); ok {
		t.Error("answers that may not be remembered have an era")
	}
}

// patient has pods wait for two devices, and content with one of each node's own.
type patient struct{ *translator }

func (p patient) AfterWait() devicescheduler.DeviceScheduler { return gpus() }

func TestAPodThatHasWaitedIsServedByAnotherSchedulerAndHasAnotherKey(t *testing.T) {
	never := &fake{name: "p", groups: true, fit: func(*types.NodeInfo, *types.PodInfo) (bool, reasons, float64) {
		return false, reasons{because("waits for better ones")}, 0
	}}
	s := set(t, clock.RealClock{}, patient{&translator{fake: never}})
	if !s.Patient() || set(t, clock.RealClock{}, never).Patient() {
		t.Error("who is patient is not known")
	}
	keys := map[RequestKey]bool{}
	for range 2 { // the second answers are cached
		for _, waited := range []bool{false, true} {
			request := asking(1)
			request.Waited = waited
			keys[request.Key()] = true
			verdict, err := s.Fit(t.Context(), nodeLike(t, s, "n", 2, 0), request)
			if err != nil || verdict.Fits != waited {
				t.Errorf("a pod for which it is %v that it has waited: %+v, %v", waited, verdict, err)
			}
		}
	}
	if len(keys) != 2 {
		t.Error("whether a pod has waited is no part of its key")
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// sharedNode returns a node with this many GPUs of 1,000 MiB.
func sharedNode(name string, count int) *v1.Node {
	var list []gpu.GPU
	for i := range count {
		list = append(list, gpu.GPU{ID: fmt.Sprint("g", i), Memory: 1000 << 20, Groups: []int{0, 0}})
	}
	info := sdk.NewNodeInfoWithName(name)
	gpu.Publish(info, gpu.Resource, list)
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		panic(err)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), ResourceVersion: "1",
		Annotations: map[string]string{deviceinfo.Annotation: annotation},
	}}
}

// sharer returns a bound pod of a namespace that holds so many MiB of a GPU of a node, and cores.
func sharer(name, namespace, node, gpuID string, memory, cores int64) *v1.Pod {
	const request, device = "resource/group/gpugrp1/0/gpugrp0/0/gpu/a/", "resource/group/gpugrp1/0/gpugrp0/0/gpu/"
	pod := annotated(newPod(name, 0), fmt.Sprintf(`{"podname":%q,"nodename":%q,"runningcontainer":{"main":{`+
		`"devrequests":{"%smemory":%d,"%scores":%d},`+
		`"allocatefrom":{"%smemory":"%s%s/memory","%scores":"%s%s/cores"}}}}`,
		name, node, request, memory<<20, request, cores, request, device, gpuID, request, device, gpuID))
	pod.Namespace, pod.Spec.NodeName = namespace, node
	return pod
}

// limited returns a pod with these limits.
func limited(name string, limits map[v1.ResourceName]string) *v1.Pod {
	pod := newPod(name, 0)
	list := v1.ResourceList{}
	for resourceName, quantity := range limits {
		list[resourceName] = resource.MustParse(quantity)
	}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list, Requests: list}
	pod.ResourceVersion = name
	return pod
}

func TestAQuotaOfPartsHoldsForWhatPodsGetOnAllOfTheirDevices(t *testing.T) {
	const memory, cores v1.ResourceName = "requests.nvidia.com/gpumem", "requests.nvidia.com/gpucores"
	hami := func(limits map[v1.ResourceName]string) *v1.Pod { return limited("p", limits) }
	mib := func(count string) *v1.Pod { return hami(map[v1.ResourceName]string{"nvidia.com/gpumem": count}) }
	path := func(requests string) *v1.Pod {
		return annotated(newPod("p", 0), `{"runningcontainer":{"main":{"requests":{`+requests+`}}}}`)
	}
	ends := quota(memory, v1.ResourceQuotaScopeTerminating)
	for name, test := range map[string]struct {
		mode   QuotaMode
		quota  *v1.ResourceQuota
		hard   string
		others []*v1.Pod
		pod    *v1.Pod
		want   string // in the refusal; empty for none
	}{
		"no quota":                {pod: mib("900")},
		"a quota of other things": {quota: quota("requests.cpu"), hard: "1", pod: mib("900")},
		"memory within the quota": {quota: quota(memory), hard: "500", pod: mib("500")},
		"memory beyond it": {
			quota: quota(memory), hard: "500", pod: mib("501"),
			want: "would give the pod 501 of nvidia.com/gpumem",
		},
		"a quota by limits": {
			quota: quota("limits.nvidia.com/gpumem"), hard: "500", pod: mib("501"),
			want: "allows 500: request less",
		},
		"a quota for other pods": {quota: ends, hard: "500", pod: mib("501")},
		"no refusals":            {mode: QuotaWarn, quota: quota(memory), hard: "500", pod: mib("501")},
		"memory of each of two GPUs": {
			quota: quota(memory), hard: "500", pod: hami(map[v1.ResourceName]string{
				"nvidia.com/gpu": "2", "nvidia.com/gpumem": "300",
			}), want: "each node would give the pod 600 of nvidia.com/gpumem on all of its devices together: " +
				`quota "q" of namespace "default" allows 500: request less, or raise the quota`,
		},
		"a percentage": {
			quota: quota(memory), hard: "500",
			pod:  hami(map[v1.ResourceName]string{"nvidia.com/gpumem-percentage": "51"}),
			want: "would give the pod 510 of",
		},
		"a percentage within it": {
			quota: quota(memory), hard: "500",
			pod: hami(map[v1.ResourceName]string{"nvidia.com/gpumem-percentage": "50"}),
		},
		"a path":               {quota: quota(memory), hard: "500", pod: path(`"gpu/a/memory":"501Mi"`), want: "501"},
		"a path, and a little": {quota: quota(memory), hard: "500", pod: path(`"gpu/a/memory":524288001`), want: "501"},
		"cores": {
			quota: quota(cores), hard: "50", pod: path(`"gpu/a/memory":"1Mi","gpu/a/cores":60`),
			want: "60 of nvidia.com/gpucores",
		},
		"a whole GPU, which has all of its memory": {
			quota: quota(memory), hard: "999", pod: newPod("p", 1),
			want: "would give the pod 1000 of nvidia.com/gpumem",
		},
		"a whole GPU within it": {quota: quota(memory), hard: "1000", pod: newPod("p", 1)},
		"with what others hold": {
			quota: quota(memory), hard: "500", pod: mib("300"),
			others: []*v1.Pod{sharer("o", "default", "n", "g0", 201, 0)},
			want:   "allows 500, and its other pods hold 201: the pod waits until they hold less",
		},
		"with what others hold elsewhere": {
			quota: quota(memory), hard: "500", pod: mib("300"),
			others: []*v1.Pod{sharer("o", "other", "n", "g0", 201, 0)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureOf(t, gpuscheduler.New("gpus", gpu.Resource), []*v1.Node{sharedNode("n", 2)}, test.others...)
			f.waiting(test.pod)
			f.plugin.quotaMode = test.mode
			if test.quota != nil {
				for name := range test.quota.Spec.Hard {
					test.quota.Spec.Hard[name] = resource.MustParse(test.hard)
				}
				if err := f.client.Tracker().Add(test.quota); err != nil {
					t.Fatal(err)
				}
			}
			_, status := f.fit(test.pod, "n")
			if strings.Contains(status.Message(), "does not know yet") {
				f.awaitActivation()
				_, status = f.fit(test.pod, "n")
			}
			if status.IsSuccess() != (test.want == "") || !strings.Contains(status.Message(), test.want) {
				t.Errorf("status %v, want %q in it", status, test.want)
			}
			if test.want != "" && status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Errorf("code %v: no eviction changes what a quota allows", status.Code())
			}
		})
	}
}

// A pod that is reserved counts, although no node of the snapshot lists it.
func TestAQuotaOfPartsCountsReservedPods(t *testing.T) {
	f := newFixtureOf(t, gpuscheduler.New("gpus", gpu.Resource), []*v1.Node{sharedNode("n", 2)})
	q := quota("requests.nvidia.com/gpumem")
	q.Spec.Hard["requests.nvidia.com/gpumem"] = resource.MustParse("500")
	if err := f.client.Tracker().Add(q); err != nil {
		t.Fatal(err)
	}
	first := limited("first", map[v1.ResourceName]string{"nvidia.com/gpumem": "300"})
	second := limited("second", map[v1.ResourceName]string{"nvidia.com/gpumem": "300"})
	f.waiting(first)
	f.waiting(second)
	f.fit(first, "n") // the quotas are read
	state := f.reserve(first, "n")
	if _, status := f.fit(second, "n"); !strings.Contains(status.Message(), "its other pods hold 300") {
		t.Errorf("the second pod: %v", status)
	}
	f.framework.RunReservePluginsUnreserve(f.Context(), state, assumed(first, "n"), "n")
	if _, status := f.fit(second, "n"); !status.IsSuccess() {
		t.Errorf("the second pod, without the first: %v", status)
	}
}

// What a quota lacks may become free on any node, also on one where the pod does not fit.
func TestAPodThatWaitsForAQuotaWakesWhenAnotherOfItsNamespaceGoes(t *testing.T) {
	mine := sharer("mine", "default", "full", "g0", 1000, 0)
	others := sharer("others", "other", "full", "g0", 1, 0)
	f := newFixtureOf(t, gpuscheduler.New("gpus", gpu.Resource),
		[]*v1.Node{sharedNode("full", 0), sharedNode("free", 1)}, mine, others)
	q := quota("requests.nvidia.com/gpumem")
	q.Spec.Hard["requests.nvidia.com/gpumem"] = resource.MustParse("1000")
	if err := f.client.Tracker().Add(q); err != nil {
		t.Fatal(err)
	}
	pod := limited("p", map[v1.ResourceName]string{"nvidia.com/gpumem": "300"})
	f.waiting(pod)
	f.preFilter(pod) // the quotas are read
	await(f, "the quotas are known", func() bool {
		return f.plugin.quotas.countParts("default", f.plugin.schedulers.CountedParts())
	})
	if status := f.preFilter(pod); status.IsSuccess() {
		t.Fatal("the pod passes by the quota")
	}
	elsewhere := limited("elsewhere", map[v1.ResourceName]string{"nvidia.com/gpumem": "300"})
	elsewhere.Namespace = "other"
	if _, status := f.fit(elsewhere, "full"); status.IsSuccess() { // what the plugin says is known from now on
		t.Fatal("a pod fits a node without GPUs")
	}
	f.delete(others)
	if woken := f.hints(fwk.AssignedPod, []*v1.Pod{pod}, others, nil); woken != 0 {
		t.Error("a pod of another namespace wakes it")
	}
	f.delete(mine)
	if woken := f.hints(fwk.AssignedPod, []*v1.Pod{pod}, mine, nil); woken != 1 {
		t.Error("the pod is not tried again")
	}
}

// No node has to list the resources of HAMi.
func TestAPodWithAPercentageWakesWhenDevicesBecomeFree(t *testing.T) {
	mine := sharer("mine", "default", "n", "g0", 1000, 0)
	f := newFixtureOf(t, gpuscheduler.New("gpus", gpu.Resource), []*v1.Node{sharedNode("n", 1)}, mine)
	pod := limited("p", map[v1.ResourceName]string{"nvidia.com/gpumem-percentage": "30"})
	f.waiting(pod)
	if _, status := f.fit(pod, "n"); status.IsSuccess() {
		t.Fatal("the pod fits a full GPU")
	}
	f.delete(mine)
	if woken := f.hints(fwk.AssignedPod, []*v1.Pod{pod}, mine, nil); woken != 1 {
		t.Error("the pod is not tried again")
	}
}

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

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// pluginNode returns a node with four GPUs on two NUMA nodes, of a plugin of the kubelet's API.
func pluginNode(name string) *v1.Node {
	info := sdk.NewNodeInfoWithName(name)
	info.Capacity["nvidia.com/gpu"] = 4
	for i := range 4 {
		sdk.AddGroupResource(info.Allocatable, fmt.Sprintf("numa/%d/nvidia.com:gpu/g%d/device", i/2, i), 1)
	}
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		panic(err)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), ResourceVersion: "1",
		Annotations: map[string]string{deviceinfo.Annotation: annotation},
	}}
}

func TestInitContainersDoNotPassByAQuota(t *testing.T) {
	one := v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}
	one.Requests = one.Limits
	two := v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}
	two.Requests = two.Limits
	pod := func(main v1.ResourceRequirements, init0, init1, last string) *v1.Pod {
		p := newPod("p", 0)
		p.Spec.InitContainers = []v1.Container{{Name: "init0", Resources: one}, {Name: "init1", Resources: one}}
		p.Spec.Containers[0].Resources = main
		return annotated(p, fmt.Sprintf(`{"initcontainer":{"init0":{"requests":{%q:1}},"init1":{"requests":{%q:1}}},`+
			`"runningcontainer":{"main":{"requests":{%q:1}}}}`, init0, init1, last))
	}
	device := func(numa, id string) string { return "numa/" + numa + "/nvidia.com:gpu/" + id + "/device" }
	hoards := pod(one, device("A", "=g0"), device("A", "=g1"), device("A", "=g3"))
	for name, test := range map[string]struct {
		mode  QuotaMode
		quota v1.ResourceName
		pod   *v1.Pod
		want  string // in the refusal; empty for none
	}{
		"different devices": {
			quota: "requests.nvidia.com/gpu", pod: hoards,
			want: "would give its containers 3 different devices of nvidia.com/gpu until the pod ends, and " +
				"Kubernetes counts 1",
		},
		"different NUMA nodes": {
			quota: "limits.nvidia.com/gpu", pod: pod(one, device("=0", "a"), device("=1", "a"), device("=1", "a")),
			want: "2 different devices",
		},
		"any quota there may be": {mode: QuotaEverywhere, pod: hoards, want: "--device-quota=everywhere"},
		"the same device": {
			quota: "requests.nvidia.com/gpu",
			pod:   pod(one, device("A", "=g1"), device("A", "=g1"), device("A", "=g1")),
		},
		"any device": {
			quota: "requests.nvidia.com/gpu", pod: pod(one, device("A", "a"), device("A", "a"), device("A", "a")),
		},
		"as many as are counted": {
			quota: "requests.nvidia.com/gpu",
			pod:   pod(two, device("A", "=g0"), device("A", "=g1"), device("A", "=g0")),
		},
		"a quota of another resource": {quota: "requests.cpu", pod: hoards},
		"no quota":                    {pod: hoards},
		"no refusals":                 {mode: QuotaWarn, quota: "requests.nvidia.com/gpu", pod: hoards},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureOf(t, kubeletplugin.New(), []*v1.Node{pluginNode("n")})
			f.waiting(test.pod)
			f.plugin.quotaMode = test.mode
			if test.quota != "" {
				if err := f.client.Tracker().Add(quota(test.quota)); err != nil {
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
		})
	}
}

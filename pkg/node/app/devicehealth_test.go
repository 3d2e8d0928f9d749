// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAPodIsWarnedOnceOfADeviceThatBecomesUnhealthy(t *testing.T) {
	const (
		qat   = "resource/group/numa/0/intel.com:qat/0000:3d:01.0/device"
		cards = "resource/group/gpu/GPU-1/cards"
		bytes = "resource/group/gpu/GPU-1/memory"
	)
	held := []grants.Allocation{{PodUID: "u", Namespace: "ns", Name: "p", PodInfo: &types.PodInfo{
		InitContainers: map[string]types.ContainerInfo{"setup": {AllocateFrom: types.ResourceLocation{"a": qat}}},
		RunningContainers: map[string]types.ContainerInfo{
			"main": {AllocateFrom: types.ResourceLocation{"a": qat, "b": cards, "c": bytes}},
		},
	}}}
	var warned []string
	h := &deviceHealth{
		grants: func() []grants.Allocation { return held },
		warn: func(pod *corev1.ObjectReference, message string) {
			warned = append(warned, pod.Namespace+"/"+pod.Name+": "+message)
		},
	}
	for _, step := range []struct {
		name string
		bad  map[types.ResourceName]string
		want []string
	}{
		{"all are healthy", nil, nil},
		{"one becomes unhealthy, and both containers hold it", map[types.ResourceName]string{qat: "is unhealthy"},
			[]string{
				`ns/p: device 0000:3d:01.0 of intel.com/qat, which container "main" holds, ` +
					`is unhealthy; the container is left alone`,
				`ns/p: device 0000:3d:01.0 of intel.com/qat, which container "setup" holds, ` +
					`is unhealthy; the container is left alone`,
			}},
		{"nothing is new", map[types.ResourceName]string{qat: "is unhealthy"}, nil},
		{"another is gone, with both its resources", map[types.ResourceName]string{qat: "is unhealthy",
			cards: "is gone", bytes: "is gone"}, []string{
			`ns/p: device resource/group/gpu/GPU-1, which container "main" holds, is gone; the container is left alone`,
		}},
		{"all are healthy again", nil, nil},
		{"that one is gone again", map[types.ResourceName]string{cards: "is gone", bytes: "is gone"}, []string{
			`ns/p: device resource/group/gpu/GPU-1, which container "main" holds, is gone; the container is left alone`,
		}},
	} {
		warned = nil
		h.check(func(name types.ResourceName) string { return step.bad[name] })
		if diff := cmp.Diff(step.want, warned); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", step.name, diff)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestPodsAreSignedAlikeWhenTheirDevicesAreChosenAlike(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	versions := 0
	sign := func(pod *v1.Pod) string {
		t.Helper()
		versions++
		pod = pod.DeepCopy()
		pod.ResourceVersion = fmt.Sprint("version ", versions)
		fragments, status := f.plugin.SignPod(t.Context(), pod)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		text, err := json.Marshal(fragments)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	two := func(a, b int64) *v1.Pod {
		pod := newPod("p", a)
		other := newPod("p", b).Spec.Containers[0]
		other.Name = "second"
		pod.Spec.Containers = append(pod.Spec.Containers, other)
		return pod
	}
	initial, sidecar := newPod("p", 1), newPod("p", 1)
	initial.Spec.InitContainers = []v1.Container{{Name: "i", Resources: initial.Spec.Containers[0].Resources}}
	sidecar.Spec.InitContainers = []v1.Container{{Name: "i", Resources: initial.Spec.Containers[0].Resources,
		RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}}

	if _, status := f.plugin.SignPod(t.Context(), annotated(newPod("p", 1), "{")); status.IsSuccess() {
		t.Error("a pod whose annotation cannot be read has a signature")
	}
	for name, test := range map[string]struct {
		a, b  *v1.Pod
		alike bool
	}{
		"plain pods":                             {newPod("a", 0), newPod("b", 0), true},
		"pods with other names and equal counts": {newPod("a", 1), newPod("b", 1), true},
		"pods with other tolerations":            {newPod("a", 1), tolerating(newPod("a", 1), "x"), false},
		"pods with other counts":                 {newPod("a", 1), newPod("a", 2), false},
		"a plain pod and a device pod":           {newPod("a", 0), newPod("a", 1), false},
		"pods with other annotations": {
			annotated(newPod("a", 1), `{"requests":{"a":1}}`), annotated(newPod("a", 1), `{"requests":{"a":2}}`), false,
		},
		"the same sum over containers":            {two(1, 2), two(2, 1), false},
		"an init container and a sidecar of same": {initial, sidecar, false},
	} {
		if a, b := sign(test.a), sign(test.b); (a == b) != test.alike {
			t.Errorf("%s: alike is %t\n%s\n%s", name, a == b, a, b)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func TestAHolderHasWhatHoldsItToItsShare(t *testing.T) {
	const (
		all     = `{"resource/group/gpu/a/memory":100,"resource/group/gpu/b/memory":100,"resource/group/gpu/b/cards":1}`
		polices = `{"onShareExceeded":"Ignore","devices":{"gpu/a":["policed"]}}`
	)
	for name, test := range map[string]struct {
		holds, node, pod string
		want             deviceinfo.Enforcement
	}{
		"a share":                          {`"resource/group/gpu/a/memory":40`, "", "", deviceinfo.Counted},
		"a share that the pod has policed": {`"resource/group/gpu/a/memory":40`, polices, "End", deviceinfo.Policed},
		"one of which nothing follows":     {`"resource/group/gpu/a/memory":40`, polices, "", deviceinfo.Counted},
		"one of another device":            {`"resource/group/gpu/b/memory":40`, polices, "End", deviceinfo.Counted},
		"all of the memory": {
			`"resource/group/gpu/a/memory":100`, polices, "", deviceinfo.EnforcedByHardware,
		},
		"a whole device": {
			`"resource/group/gpu/b/cards":1,"resource/group/gpu/b/memory":40`, "", "", deviceinfo.EnforcedByHardware,
		},
		"what cannot be read": {`"resource/group/gpu/a/memory":40`, "{", "End", deviceinfo.Counted},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
			deviceinfo.Annotation: `{"capacity":` + all + `,"allocatable":` + all + `}`,
			deviceinfo.HoldersAnnotation: `[{"uid":"1","namespace":"team","name":"train","containers":{"main":{` +
				test.holds + `}}}]`,
			deviceinfo.ShareEnforcementAnnotation: test.node,
		}}}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "1", Namespace: "team", Name: "train", Annotations: map[string]string{
				deviceinfo.OnShareExceededAnnotation: test.pod,
			}},
			Spec: corev1.PodSpec{NodeName: "n1"},
		}
		got := NewNode(node, []*corev1.Pod{pod}, time.Now())
		holders := 0
		for _, d := range got.Devices {
			for _, h := range d.Holders {
				holders++
				if h.Enforcement != test.want {
					t.Errorf("%s: %s by %s, want %s", name, d.Path, h.Enforcement, test.want)
				}
			}
		}
		problem := strings.Contains(strings.Join(got.Problems, ""), "what holds containers to shares")
		if holders != 1 || problem != (test.node == "{") {
			t.Errorf("%s: %d holders, problems %v", name, holders, got.Problems)
		}
	}
}

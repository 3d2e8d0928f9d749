// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// A node has one pair, which pods of a Deployment hold, one each.
func TestPodsOfAManifestDoNotEndForEachOther(t *testing.T) {
	m := machine{name: "n1", pairs: 1, cpu: 8}
	owned := func(name, controller string) *v1.Pod {
		pod := tenant{name: name, node: m, gpus: []string{"g" + name[len(name)-1:]}}.pod()
		pod.Labels = map[string]string{"app": "trainer"}
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: controller, UID: "rs", Controller: new(true),
		}}
		return pod
	}
	waits := newPod("waits", gpuRequest{count: 1})
	waits.OwnerReferences = owned("other-0", "trainer-5d4").OwnerReferences
	template := newPod("trainer", gpuRequest{count: 1})
	request := schedulerapi.FitRequest{Namespace: "default", Template: v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: "trainer", Labels: map[string]string{"app": "trainer"}},
		Spec:       template.Spec,
	}}
	for name, test := range map[string]struct {
		runs []runtime.Object
		ends bool
	}{
		"pods of the same Deployment": {
			[]runtime.Object{owned("a-0", "trainer-5d4"), owned("a-1", "trainer-5d4")}, false,
		},
		"one of another Deployment": {
			[]runtime.Object{owned("a-0", "trainer-5d4"), owned("a-1", "server-1")}, true,
		},
		"a pod with the name of the manifest": {
			[]runtime.Object{
				owned("a-0", "trainer-5d4"), tenant{name: "trainer", node: m, gpus: []string{"g1"}}.pod(),
			}, false,
		},
		"a pod without a controller": {
			[]runtime.Object{owned("a-0", "trainer-5d4"), tenant{name: "b", node: m, gpus: []string{"g1"}}.pod()}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, append(test.runs, m.node(), waits.DeepCopy())...)
			said, err := f.engine.Fit(f.Context(), request)
			if err != nil || said.Fits || said.Why.Smallest == nil {
				t.Fatalf("%+v, %v", said, err)
			}
			if ends := said.Why.Smallest.End != nil; ends != test.ends {
				t.Errorf("it proposes to end %+v, want some: %v", said.Why.Smallest.End, test.ends)
			}
		})
	}

	f := newFixture(t, m.node(), owned("a-0", "trainer-5d4"), owned("a-1", "trainer-5d4"), waits)
	why, err := f.engine.Why(f.Context(), schedulerapi.WhyRequest{
		Pod: schedulerapi.PodName{Namespace: "default", Name: "waits"},
	})
	if err != nil || why.Smallest == nil || why.Smallest.End != nil {
		t.Errorf("why a pod waits whose siblings have all: %+v, %v", why, err)
	}
}

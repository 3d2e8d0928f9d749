// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func TestPendingPodsWakeForWhatMayHelpThem(t *testing.T) {
	node, more, labelled, grown := newNode("n", "A"), newNode("n", "A", "B"), newNode("n", "A"), newNode("n", "A")
	labelled.Labels = map[string]string{"a": "b"}
	labelled.Annotations["theirs"] = "x"
	grown.Status.Allocatable = v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	described := newNode("n", "A")
	described.Annotations[deviceinfo.AttributesAnnotation] = `{"gpu/A":{"productName":"x"}}`
	fraction := newPod("p", 1)
	fraction.Annotations = map[string]string{"gpu-fraction": "0.5"}
	device, plain, limits := annotated(assumed(newPod("device", 1), "n"), allocationOf("device", "n",
		"A")), newPod("plain", 0),
		newPod("limits", 1)
	other := annotated(newPod("p", 1), `{}`)

	const addNode, updateNode, deletePod, updatePod = "a node comes", "a node changes", "a pod goes",
		"the pod itself changes"
	for name, test := range map[string]struct {
		event    string
		from, to any
		want     fwk.QueueingHint
	}{
		"a new node":                   {addNode, nil, node, fwk.Queue},
		"a new inventory":              {updateNode, node, more, fwk.Queue},
		"new extended resources":       {updateNode, node, grown, fwk.Queue},
		"new models of devices":        {updateNode, node, described, fwk.Queue},
		"another name of KAI":          {updatePod, newPod("p", 1), fraction, fwk.Queue},
		"other labels and annotations": {updateNode, node, labelled, fwk.QueueSkip},
		"a device pod goes":            {deletePod, device, nil, fwk.Queue},
		"a device pod goes, and its event missed": {
			deletePod, cache.DeletedFinalStateUnknown{Obj: device}, nil, fwk.Queue,
		},
		"one goes that was not bound after all": {deletePod, limits, nil, fwk.Queue},
		"a plain pod goes":                      {deletePod, plain, nil, fwk.QueueSkip},
		"its annotation changes":                {updatePod, newPod("p", 1), other, fwk.Queue},
		"something else of it changes":          {updatePod, newPod("p", 1), newPod("p", 1), fwk.QueueSkip},
		"an object of another type":             {updateNode, plain, plain, fwk.Queue},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []*v1.Node{node})
			hints := map[string]fwk.QueueingHintFn{}
			events, err := f.plugin.EventsToRegister(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range events {
				switch event.Event.Resource {
				case fwk.Node:
					hints[addNode], hints[updateNode] = event.QueueingHintFn, event.QueueingHintFn
				case fwk.AssignedPod:
					hints[deletePod] = event.QueueingHintFn
				case fwk.TargetPod:
					hints[updatePod] = event.QueueingHintFn
				}
			}
			got, err := hints[test.event](klog.Background(), newPod("pending", 1), test.from, test.to)
			if got != test.want {
				t.Errorf("got %v, error %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestTheEventsAreThoseThatCarryInventoriesAndAllocations(t *testing.T) {
	events, err := (&Plugin{Shared: &Shared{}}).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[fwk.EventResource]fwk.ActionType{}
	for _, event := range events {
		got[event.Event.Resource] = event.Event.ActionType
	}
	want := map[fwk.EventResource]fwk.ActionType{
		fwk.Node:        fwk.Add | fwk.UpdateNodeAnnotation | fwk.UpdateNodeAllocatable,
		fwk.AssignedPod: fwk.Delete,
		fwk.TargetPod:   fwk.Update,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

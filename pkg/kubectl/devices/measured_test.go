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
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func TestADeviceHasItsRealUse(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	const memory = `{"resource/group/gpu/a/memory":100,"resource/group/gpu/b/memory":100,` +
		`"resource/group/gpu/c/memory":100}`
	node := func(usage string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
				deviceinfo.Annotation: `{"capacity":` + memory + `,"allocatable":` + memory + `}`,
				deviceinfo.HoldersAnnotation: `[{"uid":"1","namespace":"team","name":"train","containers":{"main":` +
					`{"resource/group/gpu/a/memory":40},"side":{"resource/group/gpu/a/memory":10}}}]`,
				deviceinfo.UsageAnnotation: usage,
			}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	pods := []*corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{UID: "1", Namespace: "team", Name: "train"}, Spec: corev1.PodSpec{NodeName: "n1"},
	}}
	const usage = `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/a":{"memoryTotal":100,"memoryUsed":70,` +
		`"memoryUnowned":20,"containers":[{"podUID":"1","container":"main","memoryUsed":50},` +
		`{"podUID":"1","container":"side"},{"podUID":"2","container":"main","memoryUsed":9}]},` +
		`"gpu/b":{"memoryTotal":100},"gpu/gone":{"memoryTotal":100,"memoryUsed":1}}}`
	got := NewNode(node(usage, corev1.ConditionTrue), pods, at)
	want := Measured{Time: metav1.Time{Time: at}, MemoryTotal: 100, MemoryUsed: 70, MemoryUnowned: device.Read(20)}
	a := got.Devices[0]
	if a.Measured == nil || *a.Measured != want || got.Devices[1].Measured != nil || got.Devices[2].Measured != nil ||
		len(got.Problems) != 0 {
		t.Fatalf("measured is %+v, %+v; problems %v", a.Measured, got.Devices[1].Measured, got.Problems)
	}
	if len(a.Holders) != 2 || a.Holders[0].MemoryUsed != device.Read(50) ||
		a.Holders[1].MemoryUsed != (device.Reading{}) {
		t.Errorf("the holders are %+v", a.Holders)
	}
	sum := NewUsage([]*Node{got, got}).Totals[0].Measured
	if sum == nil || sum.MemoryTotal != 200 || sum.MemoryUsed != 140 || sum.MemoryUnowned != device.Read(40) {
		t.Errorf("all devices use %+v", sum)
	}
	got.ForgetMeasured()
	if a.Measured != nil || a.Holders[0].MemoryUsed != (device.Reading{}) {
		t.Errorf("what is forgotten is %+v", a)
	}
	const negativeUsage = `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/a":{"memoryTotal":100,"memoryUsed":-5}}}`
	negative := NewNode(node(negativeUsage, corev1.ConditionTrue), pods, at)
	if sum := NewUsage([]*Node{negative, got}).Totals[0]; sum.Measured != nil {
		t.Errorf("with memory that is negative, measured is %+v", sum.Measured)
	}
	for name, n := range map[string]*Node{
		"of the future":          NewNode(node(usage, corev1.ConditionTrue), pods, at.Add(-time.Hour)),
		"old":                    NewNode(node(usage, corev1.ConditionTrue), pods, at.Add(time.Hour)),
		"of a node that is lost": NewNode(node(usage, corev1.ConditionUnknown), pods, at),
		"unreadable":             NewNode(node("{", corev1.ConditionTrue), pods, at),
		"not there":              NewNode(node("", corev1.ConditionTrue), pods, at),
	} {
		unreadable := len(n.Problems) == 1 && strings.Contains(n.Problems[0], "how devices are used")
		if n.Devices[0].Measured != nil || NewUsage([]*Node{n}).Totals[0].Measured != nil ||
			unreadable != (name == "unreadable") {
			t.Errorf("%s: measured is %+v, problems %v", name, n.Devices[0].Measured, n.Problems)
		}
	}
}

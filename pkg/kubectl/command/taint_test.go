// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
)

// taintsOfNode returns the taints of a node as the API server has them, a line for each.
func (f *fixture) taintsOfNode(t *testing.T, name string) string {
	t.Helper()
	node, err := f.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := deviceinfo.DecodeDeviceTaints(node.Annotations[deviceinfo.DeviceTaintsAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, one := range list {
		taint := one.Taint()
		if !one.TimeAdded.Equal(now) {
			t.Errorf("%v was added at %v, not now", taint, one.TimeAdded)
		}
		lines = append(lines, one.Device+" "+taint.ToString())
	}
	return strings.Join(lines, "\n")
}

func TestDevicesAreCordonedAndTainted(t *testing.T) {
	f := newFixture(zoo(t)...)
	for _, step := range []struct{ line, out, taints string }{
		{
			"cordon large/gpu-3", "large/gpugrp1/0/gpugrp0/1/gpu/gpu-3 cordoned",
			"gpu/gpu-3 kubedevice.io/unschedulable:NoSchedule",
		},
		{
			"cordon large/gpugrp0/1",
			"large/gpugrp1/0/gpugrp0/1/gpu/gpu-2 cordoned\nlarge/gpugrp1/0/gpugrp0/1/gpu/gpu-3 already cordoned",
			"gpu/gpu-2 kubedevice.io/unschedulable:NoSchedule\ngpu/gpu-3 kubedevice.io/unschedulable:NoSchedule",
		},
		{
			"taint large/gpu/gpu-3 team=a:NoExecute", "large/gpugrp1/0/gpugrp0/1/gpu/gpu-3 tainted",
			"gpu/gpu-2 kubedevice.io/unschedulable:NoSchedule\ngpu/gpu-3 kubedevice.io/unschedulable:NoSchedule\n" +
				"gpu/gpu-3 team=a:NoExecute",
		},
		{
			"uncordon large/gpu-3 large/gpu-2 large/gpu-4",
			"large/gpugrp1/0/gpugrp0/1/gpu/gpu-3 uncordoned\nlarge/gpugrp1/0/gpugrp0/1/gpu/gpu-2 uncordoned\n" +
				"large/gpugrp1/1/gpugrp0/2/gpu/gpu-4 already uncordoned",
			"gpu/gpu-3 team=a:NoExecute",
		},
		{
			"taint large/gpu-3 team=b:NoExecute --overwrite", "large/gpugrp1/0/gpugrp0/1/gpu/gpu-3 tainted",
			"gpu/gpu-3 team=b:NoExecute",
		},
		{
			"taint large/gpu-3 team- other:NoSchedule", "large/gpugrp1/0/gpugrp0/1/gpu/gpu-3 modified",
			"gpu/gpu-3 other:NoSchedule",
		},
		{"taint large/gpu-3 other:NoExecute-", "large/gpugrp1/0/gpugrp0/1/gpu/gpu-3 has no such taint",
			"gpu/gpu-3 other:NoSchedule"},
		{"taint large/gpu-3 other:NoSchedule-", "large/gpugrp1/0/gpugrp0/1/gpu/gpu-3 untainted", ""},
	} {
		out, errOut, status := f.run(t.Context(), step.line)
		if strings.TrimSpace(out) != step.out || errOut != "" || status != 0 {
			t.Errorf("%s\nsays %s%s(status %d)\nwant %s", step.line, out, errOut, status, step.out)
		}
		if got := f.taintsOfNode(t, "large"); got != step.taints {
			t.Errorf("after %s the taints are\n%s\nwant\n%s", step.line, got, step.taints)
		}
	}
	node, err := f.client.CoreV1().Nodes().Get(t.Context(), "large", metav1.GetOptions{})
	if _, there := node.Annotations[deviceinfo.DeviceTaintsAnnotation]; there || err != nil {
		t.Errorf("the annotation stays when no taint is left; %v", err)
	}
	// As the table of nodes calls the device of a kubelet device plugin, and all of a node.
	for _, line := range []string{"cordon mixed/intel.com/qat/0000:3d:01.0", "cordon reporting"} {
		if out, errOut, status := f.run(t.Context(), line); status != 0 {
			t.Errorf("%s: %s%s", line, out, errOut)
		}
	}
	if got, want := f.taintsOfNode(t, "mixed"),
		"intel.com:qat/0000:3d:01.0 kubedevice.io/unschedulable:NoSchedule"; got != want {
		t.Errorf("the taints are %s, want %s", got, want)
	}
	if got := strings.Count(f.taintsOfNode(t, "reporting"), "\n"); got != 1 {
		t.Errorf("a node's two devices have %d taints", got+1)
	}
	out, _, _ := f.run(t.Context(), "nodes reporting")
	if strings.Count(out, "Healthy,Cordoned") != 2 {
		t.Errorf("the table does not show them:\n%s", out)
	}
}

func TestErrorsNameDevicesThatCannotBeTainted(t *testing.T) {
	for line, want := range map[string]string{
		"cordon large/":                           `"large/" names no device: write one behind the slash, or leave out`,
		"uncordon large/gpu-0 large/":             `"large/" names no device`,
		"taint large/ maintenance:NoExecute":      `"large/" names no device`,
		"cordon":                                  "one or more NODE/DEVICE are required",
		"cordon nowhere/gpu-0":                    `nodes "nowhere" not found`,
		"cordon large/gpu-99":                     `node "large" has no device "gpu-99": kubectl device nodes`,
		"cordon plain":                            `node "plain" has no devices`,
		"cordon unreadable":                       `node "unreadable": unreadable inventory`,
		"taint large/gpu-0":                       "one or more NODE/DEVICE, and then one or more taints, are required",
		"taint team=a:NoExecute":                  "one or more NODE/DEVICE, and then one or more taints, are required",
		"taint large/gpu-0 team:PreferNoSchedule": "devices have no PreferNoSchedule",
		"taint large/gpu-0 team=a":                `"" is no effect; use NoSchedule or NoExecute`,
		"taint large/gpu-0 a=b=c:NoExecute":       `"b=c" is no value`,
		"taint large/gpu-0 -bad:NoExecute":        "unknown shorthand flag",
		"taint large/gpu-0 .bad:NoExecute":        `".bad" is no key`,
	} {
		f := newFixture(zoo(t)...)
		out, errOut, status := f.run(t.Context(), line)
		if status != 1 || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: %s%s(status %d), want %q", line, out, errOut, status, want)
		}
	}
	f := newFixture(zoo(t)...)
	f.run(t.Context(), "taint large/gpu-0 team=a:NoExecute")
	_, errOut, status := f.run(t.Context(), "taint large/gpu-0 team=b:NoExecute")
	if want := `has the taint team:NoExecute with the value "a" already: --overwrite replaces it`; status != 1 ||
		!strings.Contains(errOut, want) {
		t.Errorf("%s, want %q", errOut, want)
	}
}

// What others write to the node meanwhile is not lost, and their taints are not either.
func TestTaintsAreReadAgainWhenOthersWriteTheNode(t *testing.T) {
	f := newFixture(zoo(t)...)
	conflicts := 2
	f.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts--; conflicts >= 0 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "large", nil)
		}
		return false, nil, nil
	})
	if out, errOut, status := f.run(t.Context(), "cordon large/gpu-3"); status != 0 {
		t.Errorf("%s%s", out, errOut)
	}
	conflicts = taintTries
	if _, errOut, status := f.run(t.Context(), "cordon large/gpu-4"); status != 1 ||
		!strings.Contains(errOut, "was written by others 10 times") {
		t.Errorf("%s", errOut)
	}
	if got, want := f.taintsOfNode(t, "large"), "gpu/gpu-3 kubedevice.io/unschedulable:NoSchedule"; got != want {
		t.Errorf("the taints are %s, want %s", got, want)
	}
}

// Who looks for a free device must not find one that the pod would not get.
func TestTaintedDevicesAreNotFree(t *testing.T) {
	f := newFixture(zoo(t)...)
	for _, line := range []string{"cordon large/gpu-2 large/gpu-3", "taint large/gpu-7 team=a:NoExecute"} {
		if out, errOut, status := f.run(t.Context(), line); status != 0 {
			t.Fatalf("%s: %s%s", line, out, errOut)
		}
	}
	expect := func(line, want string) {
		t.Helper()
		if out, _, _ := f.run(t.Context(), line); !strings.Contains(out, want) {
			t.Errorf("%s prints\n%s\nwithout %q", line, out, want)
		}
	}
	// GPU 2 is in use, and counts as such.
	expect("top large --no-headers",
		"large   gpu   8   2   1   2   1   1   1   41%   30 GiB/160 GiB   2 in gpugrp1/1\n")
	expect("nodes large -o wide", "free         Healthy,Tainted     team=a:NoExecute                         cards 0/1")
	f.terminal = columns.Terminal{Tree: true}
	expect("nodes large", "2 of 7 free, 1 cordoned, 1 tainted")
}

// Nor one of a node that takes no pods.
func TestDevicesOfANodeThatTakesNoPodsAreNotFree(t *testing.T) {
	condition := func(ready corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	}
	for name, test := range map[string]struct {
		node                     corev1.Node
		health, free, line, most string
	}{
		"no condition": {corev1.Node{}, "Healthy", "2 of 2 free", "2 0 0 0", "2 in gpugrp1/0/gpugrp0/0"},
		"ready": {
			corev1.Node{Status: corev1.NodeStatus{Conditions: condition(corev1.ConditionTrue)}},
			"Healthy", "2 of 2 free", "2 0 0 0", "2 in gpugrp1/0/gpugrp0/0",
		},
		"cordoned": {
			corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}},
			"Healthy,SchedulingDisabled", "0 of 2 free Ready,SchedulingDisabled", "0 0 0 2", "<none>",
		},
		"not ready": {
			corev1.Node{Status: corev1.NodeStatus{Conditions: condition(corev1.ConditionFalse)}},
			"Healthy,NotReady", "0 of 2 free NotReady", "0 0 0 2", "<none>",
		},
		"silent and cordoned": {
			corev1.Node{
				Spec:   corev1.NodeSpec{Unschedulable: true},
				Status: corev1.NodeStatus{Conditions: condition(corev1.ConditionUnknown)},
			},
			"Healthy,NotReady,SchedulingDisabled", "0 of 2 free NotReady,SchedulingDisabled", "0 0 0 2", "<none>",
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t, "n", gpus(2))
			node.Spec, node.Status = test.node.Spec, test.node.Status
			f := newFixture(node)
			expect := func(line, want string) {
				t.Helper()
				out, _, _ := f.run(t.Context(), line)
				if got := strings.Join(strings.Fields(out), " "); !strings.Contains(got, want) {
					t.Errorf("%s prints\n%s\nwithout %q", line, out, want)
				}
			}
			expect("nodes --no-headers", "80 GiB free "+test.health+" <none>")
			expect("top --no-headers", "n gpu 2 "+test.line+" 0 0 0% "+test.most)
			expect("top --no-headers", "<all> gpu 2 "+test.line+" 0 0 0% "+test.most)
			f.terminal = columns.Terminal{Tree: true}
			expect("nodes --no-headers", "n "+test.free+" └─")
		})
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The pods of a group are reserved one after another, from one snapshot, which shows none of them.
func TestThePodsOfAGroupAreGivenDifferentDevices(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A", "B")})
	for _, given := range []struct{ pod, gpu string }{{"one", "B"}, {"two", "A"}} {
		pod := newPod(given.pod, 1)
		f.reserve(pod, "n")
		if got, want := f.plugin.nodes.Reserved("n", pod.UID), allocationOf(given.pod, "n", given.gpu); got != want {
			t.Errorf("reserved for pod %s: %s, want %s", given.pod, got, want)
		}
	}

	// Filter cannot see that they are gone. No event will say so either: the pod must be tried
	// again by itself.
	late := newPod("late", 1)
	state, status := f.fit(late, "n")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	status = f.framework.RunReservePluginsReserve(t.Context(), state, assumed(late, "n"), "n")
	if status.Code() != fwk.Error {
		t.Errorf("Reserve says %v, want an error, so that the pod is scheduled again", status)
	}
}

// A pod of whose container the devices do not fit into its annotation in the runtime must not be
// bound: the node would refuse it for good. Each node says so before one is chosen.
func TestAPodFitsNowhereWhoseContainersDevicesDoNotFitIntoItsAnnotation(t *testing.T) {
	var gpus []string
	for i := range 100 {
		gpus = append(gpus, fmt.Sprintf("GPU-%0100d", i))
	}
	hosted := types.NewNodeInfoWithName("hosted")
	hosted.Capacity["vendor.example/qat"], hosted.Allocatable["vendor.example/qat"] = 90, 90
	for i := range 90 {
		device := kubeletdevice.Device{Resource: "vendor.example/qat", ID: fmt.Sprintf("%045d", i)}
		name, err := kubeletdevice.Name(device)
		if err != nil {
			t.Fatal(err)
		}
		hosted.Capacity[name], hosted.Allocatable[name] = 1, 1
	}
	annotation, err := deviceinfo.EncodeNode(hosted)
	if err != nil {
		t.Fatal(err)
	}
	qat := newNode("qat")
	qat.Annotations[deviceinfo.Annotation] = annotation
	ours := newFixture(t, []*v1.Node{newNode("n", gpus...), newNode("other", gpus...)})
	kubelets := newFixtureOf(t, kubeletplugin.New(), []*v1.Node{qat})
	devices := func(name string, count int64) *v1.Pod {
		pod := newPod(name, 0)
		quantity := v1.ResourceList{"vendor.example/qat": *resource.NewQuantity(count, resource.DecimalSI)}
		pod.Spec.Containers[0].Resources.Requests = quantity
		return pod
	}
	for _, test := range []struct {
		*fixture
		pod   *v1.Pod
		nodes []string
	}{
		{ours, newPod("many", 90), []string{"n", "other"}}, {kubelets, devices("eighty", 80), []string{"qat"}},
	} {
		for _, node := range test.nodes {
			_, status := test.fit(test.pod, node)
			if status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Fatalf("pod %s fits on %s: %v", test.pod.Name, node, status)
			}
			for _, want := range []string{
				"cannot serve pod default/" + test.pod.Name, `runningcontainer["main"]`,
				"bytes in the container runtime",
				"at most 7168 are allowed: request fewer devices in one container",
			} {
				if !strings.Contains(status.Message(), want) {
					t.Errorf("the reason does not have %q: %s", want, status.Message())
				}
			}
		}
	}
	ours.reserve(newPod("few", 10), "n")
	kubelets.reserve(devices("seventy", 70), "qat")
}

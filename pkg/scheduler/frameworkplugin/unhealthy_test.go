// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// nodeWithFaults returns a node with as many GPUs of 80 GiB as there are reasons. One with a reason
// is unhealthy. Its NIC is, too.
func nodeWithFaults(name string, reasons ...string) *v1.Node {
	nic := "numa/none/vendor.example:nic/eth0"
	info, since := sdk.NewNodeInfoWithName(name), time.Unix(1, 0)
	faults := []deviceinfo.UnhealthyDevice{{Device: nic, Reason: "Unhealthy", Since: since}}
	info.Capacity["vendor.example/nic"], info.Capacity[sdk.ResourceName("resource/group/"+nic+"/device")] = 1, 1
	var gpus []gpu.GPU
	for i, reason := range reasons {
		g := gpu.GPU{ID: fmt.Sprint("GPU-", i), Memory: 80 << 30, Unhealthy: reason != ""}
		gpus = append(gpus, g)
		if reason != "" {
			faults = append(faults, deviceinfo.UnhealthyDevice{
				Device: deviceinfo.DevicePath(g.Name()), Reason: reason, Since: since,
			})
		}
	}
	gpu.Publish(info, gpu.Resource, gpus)
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		panic(err)
	}
	node := newNode(name)
	node.Annotations[deviceinfo.Annotation] = annotation
	node.Annotations[deviceinfo.UnhealthyAnnotation] = deviceinfo.EncodeUnhealthy(faults, deviceinfo.MaxUnhealthyBytes)
	return node
}

// An event names why devices like those that the pod requests are unhealthy, whether it requests
// whole ones or parts.
func TestAnEventNamesWhyDevicesAreUnhealthy(t *testing.T) {
	share := func(quantity string) *v1.Pod {
		return annotated(newPod("p", 0), `{"runningcontainer":{"main":{"requests":{"gpu/a/memory":"`+quantity+`"}}}}`)
	}
	for name, test := range map[string]struct {
		nodes []*v1.Node
		pod   *v1.Pod
		want  string
	}{
		"a share of the only GPU": {
			[]*v1.Node{nodeWithFaults("n", "Xid79")}, share("20Gi"),
			"0/1 nodes are available: 1 have 1 unhealthy GPU (Xid79), 1 have no GPU.",
		},
		"a share that no healthy GPU has": {
			[]*v1.Node{nodeWithFaults("n", "Xid79", "")}, share("90Gi"),
			"0/1 nodes are available: 1 have 1 unhealthy GPU (Xid79), 1 have no GPU with 90 GiB of memory (the " +
				"largest has 80 GiB).",
		},
		"a whole GPU": {
			[]*v1.Node{nodeWithFaults("n", "Xid79")}, newPod("p", 1),
			`0/1 nodes are available: 1 cannot serve container "main": too few GPUs for 1 of nvidia.com/gpu that are ` +
				"healthy and not tainted: 0 of 1 are, 1 have 1 unhealthy GPU (Xid79).",
		},
		"nodes with as many for the same reasons": {
			[]*v1.Node{nodeWithFaults("n", "Xid79", "Lost"), nodeWithFaults("m", "Lost", "Xid79")}, share("20Gi"),
			"0/2 nodes are available: 2 have 2 unhealthy GPUs (Lost, Xid79), 2 have no GPU.",
		},
		"many reasons": {
			[]*v1.Node{nodeWithFaults("n", "A", "B", "C", "D", "E")}, share("20Gi"),
			"0/1 nodes are available: 1 have 5 unhealthy GPUs (A, B, C and 2 more), 1 have no GPU.",
		},
		"all GPUs are healthy": {
			[]*v1.Node{nodeWithFaults("n", "")}, share("90Gi"),
			"0/1 nodes are available: 1 have no GPU with 90 GiB of memory (the largest has 80 GiB).",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureOf(t, gpuscheduler.New("gpus", gpu.Resource), test.nodes)
			for range 2 { // the same from the cache
				if got := f.message(test.pod); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			}
		})
	}
}

// Devices of kubelet device plugins are like those of the same resource alone.
func TestAnEventNamesWhyHostedDevicesAreUnhealthy(t *testing.T) {
	nic, other := newPod("nic", 0), newPod("other", 0)
	one := *apiresource.NewQuantity(1, apiresource.DecimalSI)
	nic.Spec.Containers[0].Resources.Requests = v1.ResourceList{"vendor.example/nic": one}
	other.Spec.Containers[0].Resources.Requests = v1.ResourceList{"vendor.example/other": one}
	selected := annotated(newPod("selected", 0),
		`{"runningcontainer":{"main":{"requests":{"numa/A/vendor.example:nic":1}}}}`)
	node := nodeWithFaults("n")
	info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	info.Capacity["vendor.example/other"] = 0
	if node.Annotations[deviceinfo.Annotation], err = deviceinfo.EncodeNode(info); err != nil {
		t.Fatal(err)
	}
	f := newFixtureOf(t, kubeletplugin.New(), []*v1.Node{node})
	const want = "have 1 unhealthy vendor.example/nic (Unhealthy)"
	for pod, says := range map[*v1.Pod]bool{nic: true, selected: true, other: false} {
		if got := f.message(pod); strings.Contains(got, want) != says {
			t.Errorf("%s: %s", pod.Name, got)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// shownCounts is an expression for how many devices the legend has of each state.
const shownCounts = `Object.fromEntries([...document.querySelectorAll('.chip')].map(chip =>
	[chip.querySelector('.tile').classList[1], Number(chip.querySelector('b').innerText)]))`

// Devices are in use, unhealthy or neither, with and without taints, on nodes that take pods and on
// one that does not.
func TestTheMapHasTheCountsOfKubectlDeviceTop(t *testing.T) {
	ctx := begin(t)
	mixed, closed := newNode(t, "mixed", 4, 5), newNode(t, "closed")
	tainted := deviceinfo.DeviceTaint{Device: "gpu/gpu-7", Key: "team", Effect: corev1.TaintEffectNoSchedule}
	setTaints(t, mixed, cordon(0), cordon(1), cordon(2), cordon(4), tainted)
	closed.Spec.Unschedulable = true
	pods := []*corev1.Pod{
		holding(t, "vision", "whole", "mixed", 0, 0),
		holding(t, "vision", "part", "mixed", 20*gib, 1),
		holding(t, "vision", "closed", "closed", 0, 3),
	}
	create(ctx, t, []*corev1.Node{mixed, closed, newNode(t, "open")}, pods)
	start(ctx, t, pods)

	printed, err := exec.CommandContext(ctx, program, "top", "--output=json",
		"--kubeconfig="+readerConfig(ctx, t)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var usage devices.UsageList
	if err := json.Unmarshal(printed, &usage); err != nil || len(usage.Totals) != 1 {
		t.Fatalf("kubectl device top prints %s: %v", printed, err)
	}
	top := usage.Totals[0]
	if min(top.Free, top.Cordoned, top.Tainted, top.Shared, top.Whole, top.Unhealthy) == 0 {
		t.Fatalf("a count is 0, which shows little: %+v", top)
	}

	url, _ := serve(ctx, t)
	p := open(ctx, t, url, 1360, 916)
	for state, count := range map[string]int{
		"free": top.Free, "cordoned": top.Cordoned, "tainted": top.Tainted, "shared": top.Shared, "whole": top.Whole,
		"unhealthy": top.Unhealthy,
	} {
		p.Await("the count of kubectl device top of devices that are "+state,
			fmt.Sprintf("(%s)[%q] == %d", shownCounts, state, count))
	}
	p.Await("the cluster's name in the kubeconfig",
		`document.querySelector('h1').innerText == "Devices of `+clusterName+`"`)
	p.Click(tile("mixed", 0))
	p.Await("a device in use with all of its memory",
		`/memory\s+80 GiB of 80 GiB/.test(document.querySelector('.details')?.innerText)`)
}

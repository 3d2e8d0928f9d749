// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// everyTaint tolerates all taints.
var everyTaint = []v1.Toleration{{Operator: v1.TolerationOpExists}}

// TaintedDevices are the devices of one kind that have taints which a pod does not tolerate.
type TaintedDevices struct {
	// Kind is the innermost level of the devices: gpu.
	Kind string
	// Count is how many there are.
	Count int
	// Taints are those that the pod does not tolerate, in the order of their texts.
	Taints []string
}

// Untolerated returns the devices of a node that a pod does not get because of their taints, in the
// order of their kinds.
func (c *Cache) Untolerated(source *v1.Node, pod *v1.Pod) []TaintedDevices {
	if !c.tainted.Load() {
		return nil
	}
	_, inv := c.currentFor(source)
	if inv == nil || inv.taints == nil {
		return nil
	}
	tolerated := inv.taints.tolerated(pod.Spec.Tolerations)
	type found struct {
		devices map[string]bool
		taints  uint64
	}
	kinds := map[string]*found{}
	for i := range inv.taints.withheld {
		w := &inv.taints.withheld[i]
		if left := w.taints &^ tolerated; left != 0 && w.quantity > 0 {
			kind := w.path.DeviceLevel()
			if kinds[kind] == nil {
				kinds[kind] = &found{devices: map[string]bool{}}
			}
			kinds[kind].devices[w.path.Device()] = true
			kinds[kind].taints |= left
		}
	}
	var all []TaintedDevices
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		tainted := TaintedDevices{Kind: kind, Count: len(kinds[kind].devices)}
		for i := range inv.taints.kinds {
			if kinds[kind].taints&(1<<i) != 0 {
				tainted.Taints = append(tainted.Taints, inv.taints.kinds[i].ToString())
			}
		}
		slices.Sort(tainted.Taints)
		all = append(all, tainted)
	}
	return all
}

// TolerantState is State for the pod if it tolerated every taint.
func (c *Cache) TolerantState(
	ctx context.Context, nodeInfo fwk.NodeInfo, pod *v1.Pod, unmodified bool,
) (*allocation.Node, error) {
	tolerant := *pod
	tolerant.Spec.Tolerations = everyTaint
	return c.State(ctx, nodeInfo, &tolerant, unmodified)
}

// maxTaintsNamed is how many taints a text names. An event has 1024 bytes for everything.
const maxTaintsNamed = 3

// TaintsText says that a pod does not get these devices, such that it follows on a number of nodes;
// "" for none.
func TaintsText(devices []TaintedDevices, displayNames devicescheduler.Words) string {
	if len(devices) == 0 {
		return ""
	}
	count, thing := 0, devicescheduler.Noun{One: "device", Many: "devices"}
	var taints []string
	for _, tainted := range devices {
		count += tainted.Count
		taints = append(taints, tainted.Taints...)
	}
	if noun, ok := displayNames.Levels[devices[0].Kind]; ok && len(devices) == 1 {
		thing = noun
	}
	what := thing.Many
	if count == 1 {
		what = thing.One
	}
	slices.Sort(taints)
	taints = slices.Compact(taints)
	if len(taints) == 1 {
		return fmt.Sprintf("have %d %s with the taint %s, which the pod does not tolerate", count, what, taints[0])
	}
	named := strings.Join(taints[:min(len(taints), maxTaintsNamed)], ", ")
	if more := len(taints) - maxTaintsNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("have %d %s with taints that the pod does not tolerate: %s", count, what, named)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// request is how many devices of each resource a pod requests, all on one NUMA node.
type request map[corev1.ResourceName]int64

// String writes them as the scheduler does: "1 gpus.example/gpu and 2 nics.example/nic".
func (a request) String() string {
	var texts []string
	for _, resource := range slices.Sorted(maps.Keys(a)) {
		texts = append(texts, fmt.Sprintf("%d %s", a[resource], resource))
	}
	return strings.Join(texts, " and ")
}

// held says whether a pod holds the device.
func (n *node) held(d *device) bool {
	for _, devices := range n.pods {
		if slices.Contains(devices, d) {
			return true
		}
	}
	return false
}

// count returns how many devices there are of a resource for which is holds.
func (n *node) count(resource corev1.ResourceName, is func(*device) bool) int64 {
	count := int64(0)
	for _, d := range n.devices {
		if d.resource == resource && is(d) {
			count++
		}
	}
	return count
}

// missing returns all that is missing on the node for a pod, in the words of the schedulers, of
// which the pod's event must name; nothing if the node can serve it. Kubernetes counts, too: to it,
// a pod whose device is unhealthy holds one of those that are healthy.
func (n *node) missing(requested request) []string {
	var missing []string
	free := func(d *device) bool { return d.healthy && !n.held(d) }
	for _, resource := range slices.Sorted(maps.Keys(requested)) {
		if n.count(resource, (*device).isHealthy)-n.count(resource, n.held) < requested[resource] {
			missing = append(missing, "1 Insufficient "+string(resource))
		}
		switch of := n.count(resource, free); {
		case of < requested[resource] && requested[resource] == 1:
			missing = append(missing, "1 have no free "+string(resource))
		case of < requested[resource]:
			missing = append(missing, fmt.Sprintf("1 have fewer than %d free %s", requested[resource], resource))
		}
	}
	for _, d := range n.devices { // whose place will do
		enough := func(resource corev1.ResourceName) bool {
			return n.count(resource, func(other *device) bool {
				return free(other) &&
					other.place() == d.place()
			}) >= requested[resource]
		}
		if len(d.numa) > 0 && enough(gpu) && enough(nic) {
			return missing
		}
	}
	return append(missing, fmt.Sprintf("1 have no NUMA node with %s free", requested))
}

// check returns what is wrong with the devices that a pod was allocated, which it does not yet
// hold, or "".
func (n *node) check(requested request, allocated []*device) string {
	got := request{}
	for i, d := range allocated {
		got[d.resource]++
		switch {
		case !d.healthy:
			return d.id + " is unhealthy"
		case n.held(d):
			return d.id + " is another pod's"
		case slices.Contains(allocated[:i], d):
			return d.id + " was allocated twice"
		case len(d.numa) == 0 || d.place() != allocated[0].place():
			return fmt.Sprintf("%s and %s are not known to be on one NUMA node", allocated[0].id, d.id)
		}
	}
	if !maps.Equal(requested, got) {
		return fmt.Sprintf("it requests %s and has %s", requested, got)
	}
	return ""
}

// state shows the place and the ID of each device, with ! where it is unhealthy and the pod that
// holds it.
func (n *node) state() string {
	var texts []string
	for _, d := range n.devices {
		text := d.place() + d.id
		if !d.healthy {
			text += "!"
		}
		for pod, devices := range n.pods {
			if slices.Contains(devices, d) {
				text += "=" + pod.Name
			}
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

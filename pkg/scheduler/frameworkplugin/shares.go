// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// reasonShare is the reason of the event on a pod that has a part of a device.
const reasonShare = "DeviceShared"

// maxSharesNamed is how many shares an event names. It has 1024 bytes for everything.
const maxSharesNamed = 4

// reportShares writes an event on a bound pod, by what it is held to its shares of devices. A pod
// is bound once, so there is one event.
func (p *Plugin) reportShares(pod *v1.Pod, nodeName string) {
	if text := sharesText(p.nodes.Shares(nodeName, pod)); text != "" {
		p.recorder.Eventf(pod, nil, v1.EventTypeNormal, reasonShare, "Binding", "%s", text)
	}
}

// sharesText returns what the event says, "" for no shares.
func sharesText(shares []nodestate.Share) string {
	if len(shares) == 0 {
		return ""
	}
	var texts []string
	meanings := map[deviceinfo.Enforcement]bool{}
	for _, share := range shares {
		meanings[share.Enforcement] = true
	}
	for _, share := range shares[:min(len(shares), maxSharesNamed)] {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(share.Resources)) {
			parts = append(parts, grouptree.Human(share.Resources[name])+" of "+name)
		}
		texts = append(texts, fmt.Sprintf("container %q has %s of device %s (%s)", share.Container,
			strings.Join(parts, " and "), share.Device, share.Enforcement))
	}
	text := strings.Join(texts, ", ")
	if more := len(shares) - maxSharesNamed; more > 0 {
		text += fmt.Sprintf(", and there are %d more", more)
	}
	for _, e := range deviceinfo.Enforcements() {
		if meanings[e] {
			text += "; " + meaning(e)
		}
	}
	return text
}

// meaning says what an enforcement means.
func meaning(e deviceinfo.Enforcement) string {
	switch e {
	case deviceinfo.EnforcedByHardware:
		return string(e) + ": the device holds it to that"
	case deviceinfo.Policed:
		return string(e) + ": the node ends a container that uses more for a while, or evicts the pod"
	case deviceinfo.Library:
		return string(e) + ": a library that the node adds limits programs that load it"
	}
	return string(e) + ": nothing keeps a container from using more, and others either"
}

// heldByLess says that a node holds a pod to shares by less than it demands, if it requests any;
// else it is empty.
func heldByLess(r *request.Request, node *v1.Node) string {
	least := r.Choice.Least()
	if least == deviceinfo.Counted || !requestsMemory(r) {
		return ""
	}
	// What cannot be read is logged where devices are left out for it.
	of, _ := deviceinfo.DecodeShareEnforcement(node.Annotations[deviceinfo.ShareEnforcementAnnotation])
	strongest := r.Choice.Strongest(of)
	if strongest.Satisfies(least) {
		return ""
	}
	return fmt.Sprintf("shares of its devices are %s at most, and the pod demands %s by its annotation %s",
		strongest, least, deviceinfo.LeastEnforcementAnnotation)
}

// requestsMemory reports whether the pod requests memory of devices, which may be a share.
func requestsMemory(r *request.Request) bool {
	for _, container := range r.Pod.Containers() {
		for requested := range container.Requests {
			if path.Base(string(requested)) == "memory" {
				return true
			}
		}
	}
	return false
}

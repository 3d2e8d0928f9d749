// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// reasonShare is the reason of the event on a pod that has a part of a device.
const reasonShare = "ShareNotEnforced"

// maxSharesNamed is how many shares an event names. It has 1024 bytes for everything.
const maxSharesNamed = 4

// reportShares writes an event on a bound pod, that its shares of devices are not enforced: what a
// pod has of a device that others have, too, is accounted for, and the device decides what it gets.
// A pod is bound once, so there is one event.
func (p *Plugin) reportShares(pod *v1.Pod, nodeName string) {
	if text := sharesText(p.nodes.Shares(nodeName, pod.UID)); text != "" {
		p.recorder.Eventf(pod, nil, v1.EventTypeNormal, reasonShare, "Binding", "%s", text)
	}
}

// sharesText returns what the event says, "" for no shares.
func sharesText(shares []nodestate.Share) string {
	if len(shares) == 0 {
		return ""
	}
	var texts []string
	for _, share := range shares[:min(len(shares), maxSharesNamed)] {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(share.Resources)) {
			parts = append(parts, grouptree.Human(share.Resources[name])+" of "+name)
		}
		texts = append(texts, fmt.Sprintf("container %q has %s of device %s", share.Container,
			strings.Join(parts, " and "), share.Device))
	}
	text := strings.Join(texts, ", ")
	if more := len(shares) - maxSharesNamed; more > 0 {
		text += fmt.Sprintf(", and there are %d more", more)
	}
	return text + ": the scheduler counts it, and it is not enforced: a container may use more, and others too"
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// probeMethod stands for a probe in metrics.
const probeMethod = "Probe"

// probe asks the plugin whether a plain pod fits the node, as Filter does. Any answer will do.
func (c *contained) probe(ctx context.Context, node *Node) *call {
	of := &call{method: probeMethod, node: node.info.Name}
	_, of.failed = plugincall.Do(ctx, c.caller, plugincall.Call{
		Method: probeMethod, Limit: callLimit, Returned: func(took time.Duration) { c.returned(of, took) },
	}, c.podFits(node, c.plainRequest(node), "kubedevice-probe", 0))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publish()
	if answers(of) {
		c.answeredFor(node)
	}
	return of
}

// answers reports whether the plugin answered a probe.
func answers(probe *call) bool {
	outcome := plugincall.OutcomeOf(probe.failed)
	return outcome == plugincall.Answered || outcome == plugincall.Errored
}

// plainRequest returns the simplest request for the plugin's devices: that of a pod with one
// container, for one of a resource that the node lists or the plugin claims; or for one of the
// node's devices, where pods do not count them.
func (c *contained) plainRequest(node *Node) *translation {
	own := func(name types.ResourceName) bool {
		if c.kinds != nil {
			return c.kinds.has(name) || c.allocator != nil && node.inventory.allocated[name]
		}
		return len(c.claimed) == 0 || slices.Contains(c.claimed, name)
	}
	names := slices.DeleteFunc(node.inventory.PlainNames(), func(name types.ResourceName) bool { return !own(name) })
	names = append(names, c.claimed...)
	if c.kinds != nil {
		names = append(names, slices.Sorted(maps.Keys(c.kinds.plain))...)
	}
	container := types.ContainerInfo{}
	if len(names) > 0 {
		container.KubeRequests = types.ResourceList{names[0]: 1}
	} else {
		for _, name := range slices.Sorted(maps.Keys(node.info.Allocatable)) {
			path, ok := strings.CutPrefix(string(name), types.DeviceGroupPrefix+"/")
			if ok && (c.kinds == nil || c.kinds.has(name)) {
				container.Requests = types.ResourceList{types.ResourceName(path): 1}
				break
			}
		}
	}
	return newTranslation(request.NewContent(container))
}

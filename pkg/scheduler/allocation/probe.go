// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// probe asks a plugin whether a plain pod fits a node, as Filter does.
type probe struct {
	plugin *handle
	node   *Node
}

// NodeName returns the node's name.
func (p *probe) NodeName() string { return p.node.info.Name }

// Query makes the call. Any answer will do.
func (p *probe) Query() error {
	_, err := p.plugin.podFits(p.node, p.plugin.plainRequest(p.node), "kubedevice-probe", 0)()
	return err
}

// plainRequest returns the simplest request for the plugin's devices: that of a pod with one
// container, for one of a resource that the node lists or the plugin claims; or for one of the
// node's devices, where pods do not count them.
func (h *handle) plainRequest(node *Node) *translation {
	own := func(name types.ResourceName) bool {
		if h.kinds != nil {
			return h.kinds.has(name) || h.allocator != nil && node.inventory.allocated[name]
		}
		return len(h.claimed) == 0 || slices.Contains(h.claimed, name)
	}
	names := slices.DeleteFunc(node.inventory.PlainNames(), func(name types.ResourceName) bool { return !own(name) })
	names = append(names, h.claimed...)
	if h.kinds != nil {
		names = append(names, slices.Sorted(maps.Keys(h.kinds.plain))...)
	}
	container := types.ContainerInfo{}
	if len(names) > 0 {
		container.KubeRequests = types.ResourceList{names[0]: 1}
	} else {
		for _, name := range slices.Sorted(maps.Keys(node.info.Allocatable)) {
			path, ok := strings.CutPrefix(string(name), types.DeviceGroupPrefix+"/")
			if ok && (h.kinds == nil || h.kinds.has(name)) {
				container.Requests = types.ResourceList{types.ResourceName(path): 1}
				break
			}
		}
	}
	return newTranslation(request.NewContent(container))
}

// subject is what a call is about that queries whether a request can be served on a node.
func (h *handle) subject(node *Node, request *request.Request) pluginhost.Subject {
	subject := pluginhost.Subject{
		Node: node.info.Name, Request: pluginhost.Request{Key: request.Key()}, Probe: &probe{h, node},
	}
	if !h.predictable() {
		subject.Request.Pod = request.Pod.Name
	}
	return subject
}

// keptFrom reports whether the plugin is kept from a request on a node, and not called for it.
func (h *handle) keptFrom(node *Node, request *request.Request) bool {
	return h.State() != pluginhost.Serving && h.KeptFrom(h.subject(node, request))
}

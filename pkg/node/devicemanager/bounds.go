// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// What plugins may take of kubecri: each session is a connection and a goroutine. Vendors' plugins
// that have many resources, such as one for each profile of a partitioned GPU, have some dozens.
const (
	// MaxResources is how many resources device plugins may have on a node, all together.
	MaxResources = 512
	// MaxResourcesAtSocket is how many of them may be served at one socket.
	MaxResourcesAtSocket = 128
	// maxPlugins is how many plugins of one resource may live at the same time. During an update of
	// a DaemonSet there are two.
	maxPlugins = 4
)

// claim returns the resource for a plugin that is about to register it at the socket. The manager
// keeps the resource until release. The error says that the plugin would take too much.
func (m *Manager) claim(name types.ResourceName, socket string) (*resource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.resources[name]; !known {
		atSocket := 0
		for _, r := range m.resources {
			if r.session != nil && r.session.socket == socket {
				atSocket++
			}
		}
		switch {
		case len(m.resources) >= MaxResources:
			return nil, fmt.Errorf("resource %s: device plugins have %d resources on this node already, and kubecri "+
				"serves no more: stop plugins that are not needed, or let them register fewer resources", name,
				len(m.resources))
		case atSocket >= MaxResourcesAtSocket:
			return nil, fmt.Errorf("resource %s: the plugin at %s has registered %d resources already, and kubecri "+
				"serves no more at one socket: register fewer resources, or use several sockets", name, socket,
				atSocket)
		}
	}
	r := m.resource(name)
	if len(r.older)+1 >= maxPlugins {
		return nil, fmt.Errorf("resource %s is registered by %d living plugins already: stop those that are not needed",
			name, len(r.older)+1)
	}
	r.admitting++
	return r, nil
}

// release is called when the plugin is registered, or is not.
func (m *Manager) release(r *resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.admitting--
	m.drop(r)
}

// drop forgets the name of a resource of which nothing else is known: otherwise names that plugins
// tried to register would be kept for ever. The caller holds mu.
func (m *Manager) drop(r *resource) {
	if r.presence == absent && r.admitting == 0 && r.ownership == other && m.resources[r.name] == r {
		delete(m.resources, r.name)
	}
}

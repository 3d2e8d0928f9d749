// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import "fmt"

// Topology says which devices pods get that say nothing of it, of plugins that know how well
// devices are connected. It is a flag's value.
type Topology string

// The values.
const (
	// TopologyPrefer gives a pod the best devices that are free on its node. It is the default.
	TopologyPrefer Topology = "prefer"
	// TopologyRequire has a pod wait for devices as good as the best of all nodes.
	TopologyRequire Topology = "require"
)

// String returns the value.
func (t *Topology) String() string { return string(*t) }

// Type returns what help texts call the value.
func (*Topology) Type() string { return "topology" }

// Set sets the value that text names.
func (t *Topology) Set(text string) error {
	switch topology := Topology(text); topology {
	case TopologyPrefer, TopologyRequire:
		*t = topology
		return nil
	default:
		return fmt.Errorf("must be one of %s, %s", TopologyPrefer, TopologyRequire)
	}
}

// SetTopology sets which devices pods get that say nothing of it; a set without it prefers the
// best. It must be called before the set is used.
func (s *Set) SetTopology(topology Topology) {
	for _, plugin := range s.plugins {
		if topology == TopologyRequire {
			plugin.preferring = nil
		}
	}
}

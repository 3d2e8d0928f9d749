// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

type sharing struct {
	TimeSlicing *replicated `json:"timeSlicing"`
	MPS         *replicated `json:"mps"`
}

type replicated struct {
	RenameByDefault            bool             `json:"renameByDefault"`
	FailRequestsGreaterThanOne *bool            `json:"failRequestsGreaterThanOne"`
	Resources                  []replicatedItem `json:"resources"`
}

type replicatedItem struct {
	Name     string `json:"name"`
	Rename   string `json:"rename"`
	Devices  any    `json:"devices"`
	Replicas int    `json:"replicas"`
}

// sharing refuses what shares GPUs without a bound on memory.
func (r *reader) sharing(s *sharing) {
	if s == nil {
		return
	}
	if s.TimeSlicing != nil && len(s.TimeSlicing.Resources) > 0 {
		r.complain("sharing.timeSlicing is not supported: pods share a GPU by its memory, with requests for " +
			"gpu/a/memory")
	}
	if s.MPS != nil {
		r.complain("sharing.mps is not supported: pods share a GPU by its memory, with requests for gpu/a/memory")
	}
}

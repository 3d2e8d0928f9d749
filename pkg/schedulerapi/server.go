// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import "time"

// Instance is the scheduler that answers.
type Instance struct {
	// Name is that of the Lease in which it publishes its address.
	Name string `json:"name"`
	// Leads says that it is the one that schedules. Of the others, which stand by, reservations are
	// unknown: devices of pods that are just being bound look free.
	Leads bool `json:"leads"`
}

// Server is what a scheduler says of itself.
type Server struct {
	Instance
	// Version is that of the program.
	Version string `json:"version"`
	// CompleteSince is since when it knows all nodes and pods. It is absent before: nodes and pods
	// are answered with 503 then.
	CompleteSince time.Time `json:"completeSince,omitzero"`
}

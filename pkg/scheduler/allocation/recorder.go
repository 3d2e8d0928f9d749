// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"time"

	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
)

// Recorder counts what the device schedulers do. It must be safe for concurrent use and return at
// once: calls wait for it.
type Recorder interface {
	pluginhost.Recorder
	// StepLimitHit reports an answer of the group scheduler that a limit cut short, also a cached
	// one.
	StepLimitHit()
	// NotSearched reports that a node was not searched for want of a budget.
	NotSearched()
}

// unrecorded is the recorder of a set that has none.
type unrecorded struct{}

func (unrecorded) Called(string, string, pluginhost.Outcome, time.Duration) {}
func (unrecorded) Blamed(string, pluginhost.Blamed)                         {}
func (unrecorded) Quarantined(string, bool)                                 {}
func (unrecorded) Overdue(string, int)                                      {}
func (unrecorded) StepLimitHit()                                            {}
func (unrecorded) NotSearched()                                             {}

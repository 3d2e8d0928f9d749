// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"github.com/kubedevice/kubedevice/pkg/grouptree"
)

// Verdict is the answer of all device schedulers for one pod on one node.
type Verdict struct {
	// Fits says that all of them can serve the pod.
	Fits bool
	// Lack says what is missing on the node when it was the group scheduler who found that the pod
	// does not fit. It is nil otherwise.
	Shortage *grouptree.Reason
	// Reasons say why the pod does not fit, when a plugin found that, without the node's name:
	// events have them behind a number of nodes.
	Reasons []string
	// Unresolvable says, for a pod that does not fit, that it would not fit if the node were empty
	// either.
	Unresolvable bool
	// TooLarge says, for a pod that does not fit, that the devices of one of its containers do not
	// fit into the container's annotation in the container runtime. Reasons say which, and how
	// large they are.
	TooLarge bool
	// Score says how well the pod fits, from 0 to 1: the mean over the schedulers that gave one.
	Score float64
	// Quality says how good the devices are that plugins prefer for the pod on this node, from 0 to
	// 1: nodes are compared by it first, and by Score if they are equal. It is 0 on all nodes for a
	// pod that prefers no devices.
	Quality float64
	// NoDevices says that nothing of what the pod requests is a device on the node: it fits as
	// far as devices are concerned, and has no score.
	NoDevices bool
	// LimitHit says that a limit ended the search for devices, which Fit counts and logs each time.
	// TimedOut says that it was the limit of time: another time the search may get further.
	LimitHit, TimedOut bool
	// NotSearched says that there is no verdict: the pod neither fits at first sight, nor does
	// something obvious speak against it, and the budget of its cycle has nothing left for a
	// search.
	NotSearched bool
}

// Same reports whether two verdicts of the group scheduler are equal. It reports false for those of
// plugins.
func (v *Verdict) Same(other *Verdict) bool {
	return len(v.Reasons)+len(other.Reasons) == 0 && v.Fits == other.Fits && v.Shortage == other.Shortage &&
		v.Unresolvable == other.Unresolvable && v.Score == other.Score && v.Quality == other.Quality &&
		v.NoDevices == other.NoDevices && v.LimitHit == other.LimitHit && v.TimedOut == other.TimedOut
}

// unresolvable reports whether a reason would stand on an empty node too.
func unresolvable(reason *grouptree.Reason) bool {
	switch reason.Cause {
	case grouptree.Missing, grouptree.Gone, grouptree.Small:
		return true
	case grouptree.Insufficient:
		return reason.Level == "" && !reason.Mask && reason.Needed > reason.Capacity
	default:
		return false
	}
}

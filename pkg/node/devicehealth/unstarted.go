// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"slices"
	"time"
)

// unstartedDelay is the least time from a failure to what follows for a container that never ran:
// by then the API server knows if it has been started meanwhile.
const unstartedDelay = 10 * time.Second

// unstarted returns the failures of containers that never ran. The runtime creates no container
// with a failed device, so that the pod would wait for ever.
func (a affected) unstarted() affected {
	a.failed = slices.DeleteFunc(slices.Clone(a.failed), func(f failure) bool {
		return !a.pod.NeverStarted(f.container)
	})
	return a
}

// lacksPlugin reports whether a plugin is gone that the pod waits for.
func (a affected) lacksPlugin() bool {
	return slices.ContainsFunc(a.failed, func(f failure) bool { return !f.isFailure() })
}

// effectiveRule returns the failures for which something is done, and by which rule. A container
// that never ran loses nothing with its device: unless the pod says otherwise, it is given another
// one, or the pod is evicted, where the rule is to leave running containers alone. A pod that waits
// for its devices, or was granted them and waits for their plugin, is evicted soon if no container
// of it ever ran: it is as one that fails at the kubelet's admission.
func effectiveRule(a affected, rule Rule) (affected, Rule) {
	waiting := a.unstarted()
	fails := a.granted.Waits && len(waiting.failed) > 0 || waiting.lacksPlugin() && a.pod.NoneStarted()
	if fails && a.pod.Failure.Policy != string(Ignore) {
		return waiting, Rule{Evict, unstartedDelay}
	}
	if rule.Policy != Ignore || a.pod.Failure.Policy != "" {
		return a, rule
	}
	if len(waiting.failed) > 0 {
		return waiting, Rule{Replace, max(rule.GracePeriod, unstartedDelay)}
	}
	return a, rule
}

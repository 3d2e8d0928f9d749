// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// follow calls round until ctx is done: when what now returns, the grants or the pods change, and
// at the time that the last round has returned, unless that is zero. It calls nothing before all
// grants and pods are known.
//
// A round may take as long as the API server does. While it runs, its basis is outdated once what
// now returned or the grants have changed: then another round follows at once.
func follow[T any](
	ctx context.Context, now func() (T, <-chan struct{}), granted Grants, pods Pods,
	round func(what T, granted []grants.Allocation, basis basis) (next time.Time),
) {
	for {
		what, changed := now()
		list, complete, grantsChanged := granted.Follow()
		podsChanged := pods.Changed()
		var next time.Time
		if complete && pods.Check() == nil {
			next = round(what, list, basis{changed, grantsChanged})
		}
		wake, stop := wakeAt(next)
		select {
		case <-changed:
		case <-grantsChanged:
		case <-podsChanged:
		case <-wake:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// basis has the channels that are closed when what a round goes by has changed.
type basis struct{ changed, grantsChanged <-chan struct{} }

func (b basis) outdated() bool { return isClosed(b.changed) || isClosed(b.grantsChanged) }

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// wakeAt returns a channel that delivers at that time, or never for the zero time.
func wakeAt(at time.Time) (wake <-chan time.Time, stop func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, func() { timer.Stop() }
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
)

// limitLogPeriod is how often an answer that the step limit cut short is logged. A pod may get one
// from every node; the recorder gets them all.
const limitLogPeriod = time.Minute

// limitLog logs answers that the step limit cut short. It is safe for concurrent use.
type limitLog struct {
	clock clock.PassiveClock
	next  atomic.Int64 // when to log again, in nanoseconds since 1970
}

// log logs the answer, unless one was logged less than a period ago. The logger of ctx has the pod.
func (l *limitLog) log(ctx context.Context, node *Node, placement *grouptree.Placement) {
	now, next := l.clock.Now(), l.next.Load()
	if now.UnixNano() < next || !l.next.CompareAndSwap(next, now.Add(limitLogPeriod).UnixNano()) {
		return
	}
	klog.FromContext(ctx).Info("The search for devices stopped at its step limit: a placement that it found may not be "+
		"the best, and one that it did not find may exist", "node", klog.KRef("", node.info.Name),
		"steps", placement.Steps, "found", placement.Fits, "silentFor", limitLogPeriod)
}

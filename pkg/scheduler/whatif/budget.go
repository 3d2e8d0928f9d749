// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"errors"
	"time"
)

const (
	// maxSteps is how often one question may try a node.
	maxSteps = 1_000_000
	// workSlice is how long a question works before it rests.
	workSlice = time.Millisecond
	// idleFactor is how long it then rests, in units of its work. busyFactor is how long it rests
	// after that while the scheduler schedules pods, in busyPauses parts.
	idleFactor, busyFactor, busyPauses = 1, 100, 10
)

// errOver says that the time or the steps of a question are used up.
var errOver = errors.New("the time for the question is over")

// budget is the remaining time and steps of one question.
type budget struct {
	ctx      context.Context
	deadline time.Time
	engine   *Engine
	began    time.Time // of this stretch of work
	steps    int64     // taken
}

// step accounts for one trial of a node; the caller calls it before. It rests when it is time.
func (b *budget) step() error {
	b.steps++
	if now := time.Now(); now.Sub(b.began) >= workSlice {
		b.engine.throttle(now.Sub(b.began))
		b.began = time.Now()
	}
	switch {
	case b.ctx.Err() != nil:
		return b.ctx.Err()
	case b.steps > maxSteps || !b.began.Before(b.deadline):
		return errOver
	}
	return nil
}

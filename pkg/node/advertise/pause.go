// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import "time"

// pause is the time between two tries. The zero value is over. It is for one goroutine.
type pause struct {
	on    bool
	until time.Time
	timer *time.Timer
}

// begin makes the pause last for d from now.
func (p *pause) begin(d time.Duration) {
	p.end()
	p.on, p.until, p.timer = true, time.Now().Add(d), time.NewTimer(d)
}

// cut makes a pause that is on last for no more than d from now. However often it is cut, it never becomes longer.
func (p *pause) cut(d time.Duration) {
	if p.on && time.Until(p.until) > d {
		p.begin(d)
	}
}

// over returns a channel that delivers when the pause that is on should end, or nil.
func (p *pause) over() <-chan time.Time {
	if !p.on {
		return nil
	}
	return p.timer.C
}

// end ends the pause.
func (p *pause) end() {
	if p.on {
		p.timer.Stop()
	}
	p.on = false
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

const (
	// failuresAllowed is the number of failed calls in a row after which a plugin is set aside.
	failuresAllowed = 3

	// firstPause and lastPause bound the time for which a plugin is set aside. It doubles each time that the plugin comes
	// back and fails at once.
	firstPause = time.Second
	lastPause  = time.Minute

	// latePause is how long those who wait for a late call should wait before they look again. A call that only just
	// missed its deadline has returned by then.
	latePause = time.Second
)

// ErrNoAnswer is matched by the errors that say that a plugin was asked and failed, or is set aside: another time it may
// answer. An error that a plugin returned is an answer.
var ErrNoAnswer = errors.New("no answer")

// failure is why there is no answer.
type failure struct {
	outcome Outcome
	text    string
}

func (f failure) Error() string { return f.text }

// Is makes every failure match ErrNoAnswer.
func (f failure) Is(target error) bool { return target == ErrNoAnswer }

// health is what a plugin's calls have shown. It is guarded by the mutex of the contained plugin.
type health struct {
	late     int           // abandoned calls that have not returned yet
	failures int           // failed calls in a row
	pause    time.Duration // length of the last pause
	asideTo  time.Time     // end of the pause
	lastErr  error         // why the plugin was set aside
	aside    bool          // as the recorder was told last
}

// available reports why the plugin may not be called now.
func (c *contained) available() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late > 0 {
		return failure{SetAside, "set aside: an earlier call has not returned"}
	}
	if c.clock.Now().Before(c.asideTo) {
		return failure{SetAside, fmt.Sprintf("set aside until %s after %d failures in a row: %v", c.asideTo.Format(time.TimeOnly), c.failures, c.lastErr)}
	}
	return nil
}

// setAside tells the recorder of a change. The caller holds the mutex.
func (c *contained) setAside(aside bool) {
	if c.aside != aside {
		c.aside = aside
		c.shunned.Store(aside)
		c.recorder.SetAside(c.name, aside)
	}
}

// remainingPause returns how long the plugin stays set aside.
func (c *contained) remainingPause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late > 0 {
		return latePause
	}
	return c.asideTo.Sub(c.clock.Now())
}

// record counts failures in a row and sets the plugin aside when they are too many.
func (c *contained) record(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if !errors.Is(err, ErrNoAnswer) {
		c.failures, c.pause = 0, 0
		if c.late == 0 && !now.Before(c.asideTo) { // else the answer is to a call from before
			c.setAside(false)
		}
		return
	}
	c.failures++
	c.lastErr = err
	if c.failures < failuresAllowed || now.Before(c.asideTo) {
		return
	}
	c.pause = min(max(2*c.pause, firstPause), lastPause)
	c.asideTo = now.Add(c.pause)
	c.setAside(true)
	klog.FromContext(ctx).Error(err, "Device scheduler is set aside: its devices cannot be scheduled", "deviceScheduler", c.name, "failures", c.failures, "pause", c.pause)
}

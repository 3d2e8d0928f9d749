// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// pass lets time pass.
func (m *machine) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAFlapOfASecondCostsNoPod(t *testing.T) {
	runMachine(t, Rule{Policy: Evict}, nil, true, func(m *machine) {
		for range 3 {
			m.breaks("0 Xid79")
			m.expect("right after a device fails")
			if m.annotation == "" {
				t.Error("its failure is not published at once")
			}
			m.pass(time.Second)
			m.breaks()
			m.pass(time.Hour)
			m.expect("it was healthy again after a second")
			m.expectCondition("after that", "0", "")
		}
	})
}

// step is a state of a device, and for how long it is in it.
type step struct {
	health string // of GPU 0: a reason, or nothing where it is healthy
	lasts  time.Duration
}

// times returns the steps so many times.
func times(count int, steps ...step) []step { return slices.Repeat(steps, count) }

// The pod's grace period is ten seconds, and a failure is one after settleTime, which is three.
func TestOnlyAFailureThatHoldsEndsAPod(t *testing.T) {
	const grace, xid, gone = 10 * time.Second, "Xid79", "Gone"
	for name, c := range map[string]struct {
		steps []step
		// ends is after how long in the last step the pod is evicted; zero where it is not.
		ends time.Duration
	}{
		"one flap": {steps: []step{{xid, time.Second}, {"", time.Hour}}},
		"a flap while it recovers": {
			steps: append(times(2, step{xid, time.Second}, step{"", 4 * time.Second}), step{"", time.Hour}),
		},
		"endless short flaps":       {steps: times(600, step{xid, time.Second / 3}, step{"", time.Second / 3})},
		"endless flaps, mostly ill": {steps: times(600, step{xid, 29 * time.Second / 10}, step{"", time.Second / 10})},
		"flaps of several causes": {
			steps: times(300, step{xid, time.Second}, step{"Lost", time.Second}, step{"", time.Second}),
		},
		"it is listed now and then":               {steps: times(300, step{gone, time.Second}, step{"", time.Second})},
		"a failure shorter than its grace period": {steps: []step{{xid, 9 * time.Second}, {"", time.Hour}}},
		"a flap after such a failure": {steps: []step{
			{xid, 9 * time.Second}, {"", time.Second}, {xid, 2 * time.Second}, {"", time.Hour},
		}},
		"a failure that holds": {steps: []step{{xid, time.Hour}}, ends: grace},
		"a failure that holds after flaps": {
			steps: append(times(60, step{xid, time.Second}, step{"", time.Second}), step{xid, time.Hour}), ends: grace,
		},
		"a failure that holds after a shorter one": {
			steps: []step{{xid, 9 * time.Second}, {"", time.Second}, {xid, time.Hour}}, ends: grace,
		},
		"it is listed no more after flaps": {
			steps: append(times(60, step{gone, time.Second}, step{"", time.Second}), step{gone, time.Hour}),
			ends:  grace,
		},
	} {
		t.Run(name, func(t *testing.T) {
			runMachine(t, Rule{Policy: Evict, GracePeriod: grace}, nil, true, func(m *machine) {
				for i, s := range c.steps {
					if s.health == "" {
						m.breaks()
					} else {
						m.breaks("0 " + s.health)
					}
					if i == len(c.steps)-1 && c.ends > 0 {
						m.pass(c.ends - time.Second)
						m.expectEvicted("before its grace period is over", false)
						m.pass(2 * time.Second)
						m.expectEvicted("after its grace period", true)
						return
					}
					m.pass(s.lasts)
				}
				m.expectEvicted("in the end", false)
			})
		})
	}
}

// Flaps are no news for the pod: it has no event of them.
func TestFlapsAreNoEventsOfThePod(t *testing.T) {
	runMachine(t, Rule{Policy: Evict}, nil, true, func(m *machine) {
		for range 30 {
			m.breaks("0 Xid79")
			m.pass(time.Second)
			m.breaks()
			m.pass(time.Second)
		}
		m.expect("after flaps")
		m.expectCondition("after flaps", "0", "")
	})
}

// expectEvicted fails the test unless pod 0 is evicted, or is not.
func (m *machine) expectEvicted(when string, want bool) {
	m.t.Helper()
	said := m.inspect()
	if got := slices.Contains(said, "evicted 0"); got != want {
		m.t.Errorf("%s, that the pod is evicted is %t, want %t: %q", when, got, want, said)
	}
}

func TestADeviceThatRecoversEvictsNoPodAndSaysSoWhenItHasHeld(t *testing.T) {
	runMachine(t, Rule{Policy: Evict, GracePeriod: 10 * time.Second}, nil, true, func(m *machine) {
		m.breaks("0 Xid79")
		m.pass(9 * time.Second)
		m.inspect()
		m.breaks()
		m.pass(2 * time.Second)
		m.expect("its grace period ends while it recovers")
		m.expectCondition("meanwhile", "0", "DevicesHealthy=False Xid79")
		m.pass(10 * time.Second)
		m.expect("when it has held", "node Normal: device resource/group/gpu/0 is healthy again")
		m.expectCondition("when it has held", "0", "DevicesHealthy=True DevicesHealthy")
	})
}

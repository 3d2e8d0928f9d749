// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
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

func TestWhatHasLastedIsAFailureAndSoIsAFlapThatDoesNotEnd(t *testing.T) {
	for name, flaps := range map[string]bool{"it is unhealthy": false, "it flaps": true} {
		t.Run(name, func(t *testing.T) {
			runMachine(t, Rule{Policy: Evict, GracePeriod: 10 * time.Second}, nil, true, func(m *machine) {
				began := time.Now()
				m.breaks("0 Xid79")
				for range 4 {
					m.pass(time.Second)
					if flaps {
						m.breaks()
						m.pass(100 * time.Millisecond)
						m.breaks("0 Xid79")
					}
				}
				at := began.Add(10 * time.Second).UTC().Format(time.RFC3339)
				m.expect("after some seconds", nodeIll, podIll+"; the pod is evicted if it is so at "+at)
				m.pass(10 * time.Second)
				m.expect("after its grace period", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
			})
		})
	}
}

func TestADeviceThatRecoversEvictsNoPodAndSaysSoWhenItHasHeld(t *testing.T) {
	runMachine(t, Rule{Policy: Evict, GracePeriod: 10 * time.Second}, nil, true, func(m *machine) {
		m.breaks("0 Xid79")
		m.pass(9 * time.Second)
		m.look()
		m.breaks()
		m.pass(2 * time.Second)
		m.expect("its grace period ends while it recovers")
		m.expectCondition("meanwhile", "0", "DevicesHealthy=False Xid79")
		m.pass(10 * time.Second)
		m.expect("when it has held", "node Normal: device resource/group/gpu/0 is healthy again")
		m.expectCondition("when it has held", "0", "DevicesHealthy=True DevicesHealthy")
	})
}

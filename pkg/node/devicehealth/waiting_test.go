// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// Pod 0 waits for its devices, which cannot be used, and was granted nothing. The node leaves pods
// alone whose devices fail.
func TestAPodThatWaitsForADeviceIsEvictedSoon(t *testing.T) {
	for name, c := range map[string]struct {
		breaks  func(m *machine)
		granted bool   // the pod was granted the device, and its container was refused since
		policy  string // of the pod
		ran     bool   // its container did, before a reboot
		says    string // in its event
		evicts  bool
	}{
		"the device is gone": {
			breaks: func(m *machine) { m.breaks("0 Gone") }, says: "is gone", evicts: true,
		},
		"the device is unhealthy": {
			breaks: func(m *machine) { m.breaks("0 Xid79") }, says: "is unhealthy (Xid79: broken)", evicts: true,
		},
		"its plugin is gone": {
			breaks: func(m *machine) { m.source.set(nil, true) }, says: "(PluginGone: the plugin has left)",
			evicts: true,
		},
		"the pod wants to wait": {
			breaks: func(m *machine) { m.breaks("0 Gone") }, policy: "Ignore", says: "is gone",
		},
		"it ran, and its plugin is late after a reboot": {
			breaks: func(m *machine) { m.source.set(nil, true) }, ran: true,
		},
		"its device is healthy": {breaks: func(*machine) {}},
		"another plugin has its device": {
			breaks: func(m *machine) { m.source.claim(errors.New("two claim it")) },
		},
		"it was granted the device, whose plugin is gone": {
			breaks: func(m *machine) { m.source.set(nil, true) }, granted: true,
			says: "the pod is evicted if it is so at ", evicts: true,
		},
		"it was granted the device, whose plugin is gone, and wants to wait": {
			breaks: func(m *machine) { m.source.set(nil, true) }, granted: true, policy: "Ignore",
			says: "is left alone",
		},
		"it was granted the device, which another plugin has": {
			breaks: func(m *machine) { m.source.claim(errors.New("two claim it")) }, granted: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Rule{Policy: Ignore, GracePeriod: time.Hour}, nil, func(m *machine) {
				m.stop()
				if c.granted {
					m.granted[0].Waiting = []string{"main"}
				} else {
					m.granted[0].Waits = true
				}
				m.pods.change(func(all map[string]pods.Pod) {
					pod := all["0"]
					pod.Containers = []pods.Container{{Name: "main"}}
					if !c.ran {
						pod.Unstarted = []string{"main"}
					}
					all["0"] = pod
				})
				m.start()
				if c.policy != "" {
					m.wants("0", c.policy, "")
				}
				c.breaks(m)
				said := strings.Join(m.inspect(), "\n")
				warned := strings.Contains(said, "pod 0 DeviceUnhealthy: ")
				if warned != (c.says != "") || !strings.Contains(said, c.says) {
					t.Errorf("at once it is said: %s", said)
				}
				m.pass(unstartedDelay - 2*time.Second)
				if said := m.inspect(); slices.Contains(said, "evicted 0") {
					t.Errorf("too early: %q", said)
				}
				m.pass(3 * time.Second)
				said = strings.Join(m.inspect(), "\n")
				if got := strings.Contains(said, "evicted 0"); got != c.evicts {
					t.Errorf("that it is evicted is %t, want %t: %s", got, c.evicts, said)
				}
				if strings.Contains(said, "evicted 1") {
					t.Errorf("a pod that has its device is evicted: %s", said)
				}
			})
		})
	}
}

// A pod waited for its plugin, which is back before the pod's container is tried again. Much later
// the plugin is gone once more, for a moment, and then for good.
func TestAPodThatWaitsAgainIsEvictedAfterTheDelayOfThatTime(t *testing.T) {
	run(t, Rule{Policy: Ignore, GracePeriod: time.Hour}, nil, func(m *machine) {
		m.stop()
		m.granted[0].Waits = true
		m.pods.change(func(all map[string]pods.Pod) {
			pod := all["0"]
			pod.Unstarted = []string{"main"}
			all["0"] = pod
		})
		m.start()
		evicted := func() bool { return slices.Contains(m.inspect(), "evicted 0") }
		for range 2 {
			m.source.set(nil, true)
			m.pass(unstartedDelay - 2*time.Second)
			if evicted() {
				t.Error("it is evicted too early")
			}
			m.source.set(nil, false)
			m.pass(time.Hour)
		}
		if evicted() {
			t.Error("it is evicted while its device is healthy")
		}
		m.source.set(nil, true)
		m.pass(unstartedDelay + time.Second)
		if !evicted() {
			t.Error("it waits for ever")
		}
	})
}

// Pod 0 was granted its devices, and an init container has used them or none. When its second
// container is created, the plugin is gone.
func TestAPodThatRanAndWaitsForItsPluginIsEvictedAfterTheGracePeriod(t *testing.T) {
	for name, c := range map[string]struct {
		refused bool // the second container was, since
		evicts  bool
	}{
		"its container was refused":         {true, true},
		"its init container runs, and none": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			const grace = time.Minute
			run(t, Rule{Policy: Ignore, GracePeriod: grace}, nil, func(m *machine) {
				m.stop()
				if c.refused {
					m.granted[0].Waiting = []string{"main"}
				}
				m.pods.change(func(all map[string]pods.Pod) {
					pod := all["0"]
					pod.Containers = []pods.Container{{Name: "gate", Init: true}, {Name: "main"}}
					pod.Unstarted = []string{"main"}
					all["0"] = pod
				})
				m.start()
				m.source.set(nil, true)
				said := strings.Join(m.inspect(), "\n")
				if strings.Contains(said, "as its devices are not replaced: no device plugin serves them") != c.evicts {
					t.Errorf("at once it is said: %s", said)
				}
				m.pass(grace - 2*time.Second)
				if said := m.inspect(); slices.Contains(said, "evicted 0") {
					t.Errorf("too early: %q", said)
				}
				m.pass(3 * time.Second)
				if said := m.inspect(); slices.Contains(said, "evicted 0") != c.evicts {
					t.Errorf("that it is evicted is not %t: %q", c.evicts, said)
				}
			})
		})
	}
}

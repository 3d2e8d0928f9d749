// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// errBudget is what the API server answers when a PodDisruptionBudget forbids an eviction.
var errBudget = apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)

const (
	ill     = `device resource/group/gpu/0, which container "main" holds, is unhealthy (Xid79: broken)`
	podIll  = "pod 0 DeviceUnhealthy: " + ill
	nodeIll = "node Warning: device resource/group/gpu/0 is unhealthy (Xid79: broken)"
)

// expect compares what was said since the last look.
func (m *machine) expect(when string, want ...string) {
	m.t.Helper()
	if diff := cmp.Diff(want, m.inspect()); diff != "" {
		m.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func (m *machine) expectCondition(when, id, want string) {
	m.t.Helper()
	if got := m.condition(id); got != want {
		m.t.Errorf("%s: the condition of pod %s is %q, want %q", when, id, got, want)
	}
}

func TestIgnoreWritesAnEventAndLeavesThePodAlone(t *testing.T) {
	run(t, Rule{Policy: Ignore}, nil, func(m *machine) {
		m.expect("all are healthy")
		m.breaks("0 Xid79")
		m.expect("one fails", nodeIll, podIll+"; the container is left alone")
		m.expectCondition("one fails", "0", "DevicesHealthy=False Xid79")
		m.expectCondition("its neighbour", "1", "")
		published, err := deviceinfo.DecodeUnhealthy(m.annotation)
		if err != nil || len(published) != 1 || published[0].Device != "gpu/0" || published[0].Reason != "Xid79" ||
			published[0].Message != "broken" || !published[0].Since.Equal(time.Now()) {
			t.Errorf("published is %+v, %v", published, err)
		}
		time.Sleep(time.Hour)
		m.expect("nothing follows")

		m.breaks("0 Xid79", "2 Gone")
		m.expect("another is gone", `node Warning: device resource/group/gpu/2 is unhealthy `+
			`(Gone: its device plugin no longer lists it)`,
			`pod 2 DeviceUnhealthy: device resource/group/gpu/2, which container "main" holds, is gone `+
				`(Gone: its device plugin no longer lists it); the container is left alone`)
		m.expectCondition("another is gone", "2", "DevicesHealthy=False Gone")

		m.breaks()
		m.expect("all are healthy again",
			"node Normal: device resource/group/gpu/0, device resource/group/gpu/2 are healthy again")
		m.expectCondition("healthy again", "0", "DevicesHealthy=True DevicesHealthy")
		if m.annotation != "" {
			t.Errorf("published is %s", m.annotation)
		}
		m.breaks("0 Xid79")
		m.expect("the same again", nodeIll, podIll+"; the container is left alone")
	})
}

func TestAConditionThatOthersTakeAwayIsSetAgain(t *testing.T) {
	run(t, Rule{Policy: Ignore}, nil, func(m *machine) {
		m.breaks("0 Xid79")
		m.inspect()
		pod, err := m.client.CoreV1().Pods("team").Get(t.Context(), "0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.Conditions = nil
		if err := m.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "team"); err != nil {
			t.Fatal(err)
		}
		m.pods.change(func(all map[string]pods.Pod) {
			pod := all["0"]
			pod.Failure = pods.Failure{}
			all["0"] = pod
		})
		time.Sleep(callTimeout)
		m.inspect()
		m.expectCondition("after a while", "0", "DevicesHealthy=False Xid79")
	})
}

func TestEvictWaitsForTheGracePeriod(t *testing.T) {
	run(t, Rule{Evict, time.Minute}, nil, func(m *machine) {
		m.wants("1", "Ignore", "")
		m.breaks("0 Xid79", "1 Lost")
		due := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		m.expect("two fail", "node Warning: device resource/group/gpu/0 is unhealthy (Xid79: broken)",
			"node Warning: device resource/group/gpu/1 is unhealthy (Lost: broken)",
			podIll+"; the pod is evicted if it is so at "+due,
			`pod 1 DeviceUnhealthy: device resource/group/gpu/1, which container "main" holds, is unhealthy `+
				`(Lost: broken); the container is left alone`)
		time.Sleep(time.Minute - time.Millisecond)
		m.expect("just before")
		time.Sleep(time.Millisecond)
		m.expect("then", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
		time.Sleep(time.Hour)
		m.expect("and no other pod, and not again")
	})
}

func TestADeviceThatIsHealthyInTimeEvictsNoPod(t *testing.T) {
	run(t, Rule{Evict, time.Minute}, nil, func(m *machine) {
		m.breaks("0 Xid79")
		time.Sleep(59 * time.Second)
		m.inspect()
		m.breaks()
		m.expect("healthy in time", "node Normal: device resource/group/gpu/0 is healthy again")
		time.Sleep(30 * time.Second)
		m.breaks("0 Xid79")
		m.inspect()
		time.Sleep(59 * time.Second)
		m.expect("the time starts again")
		time.Sleep(time.Second)
		m.expect("then", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
	})
}

// A round of evictions takes as long as the API server does.
func TestADeviceThatIsHealthyAgainWhileOthersAreEvictedEvictsNoPod(t *testing.T) {
	run(t, Rule{Evict, time.Minute}, nil, func(m *machine) {
		m.breaks("0 Xid79", "1 Xid79", "2 Xid79")
		m.inspect()
		recovers := func(reason string) {
			if reason == reasonEvicted {
				m.source.set(nil, false) // the driver has recovered
				time.Sleep(time.Second)
			}
		}
		m.warned.Store(&recovers)
		time.Sleep(time.Minute)
		evicted := 0
		for _, line := range m.inspect() {
			if strings.HasPrefix(line, "evicted ") {
				evicted++
			}
		}
		time.Sleep(time.Minute)
		for _, line := range m.inspect() {
			if strings.HasPrefix(line, "evicted ") {
				evicted++
			}
		}
		if evicted != 1 {
			t.Errorf("%d pods are evicted, want the first", evicted)
		}
	})
}

func TestTheGracePeriodGoesOnOverRestarts(t *testing.T) {
	run(t, Rule{Evict, time.Minute}, nil, func(m *machine) {
		m.breaks("0 Xid79")
		m.inspect()
		for range 3 {
			time.Sleep(15 * time.Second)
			m.restart()
			m.expect("after a restart nothing is said twice")
		}
		time.Sleep(15*time.Second - time.Millisecond)
		m.expect("just before")
		m.stop()
		time.Sleep(time.Second)
		m.start()
		m.inspect()
		if m.pods.Active("0") {
			t.Error("a minute after the device failed the pod is still there")
		}
	})
}

func TestADeviceThatRecoversWhileKubecriIsAwayEvictsNoPod(t *testing.T) {
	run(t, Rule{Evict, time.Minute}, nil, func(m *machine) {
		m.breaks("0 Xid79")
		m.inspect()
		m.stop()
		m.breaks()
		time.Sleep(time.Hour)
		m.start()
		m.inspect()
		m.expectCondition("after the restart", "0", "DevicesHealthy=True DevicesHealthy")
		m.breaks("0 Xid79")
		m.inspect()
		time.Sleep(59 * time.Second)
		m.inspect()
		if !m.pods.Active("0") {
			t.Error("the pod was evicted by the time of an earlier failure")
		}
	})
}

func TestABudgetHoldsAnEvictionBackUntilItAllowsIt(t *testing.T) {
	run(t, Rule{Policy: Evict}, nil, func(m *machine) {
		m.budget.Store(true)
		m.breaks("0 Xid79")
		first := m.inspect()
		blocked := "pod 0 DeviceFailureBlocked: the pod cannot be evicted yet: " + errBudget.Error()
		if text := strings.Join(first, "\n"); !strings.Contains(text, "budget holds 0") ||
			!strings.Contains(text, blocked) {
			t.Errorf("at first:\n%s", text)
		}
		tries := 0
		for range 60 {
			time.Sleep(10 * time.Second)
			for _, said := range m.inspect() {
				if said != "budget holds 0" {
					t.Errorf("while it is held back: %s", said)
				}
				tries++
			}
		}
		if tries < 10 || tries > 20 {
			t.Errorf("it was tried %d times in ten minutes, want about once a minute in the end", tries)
		}
		m.budget.Store(false)
		time.Sleep(time.Minute)
		m.expect("the budget allows it", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
	})
}

func TestAPodThatIsHeldBackStaysWhenItsDeviceIsHealthyAgain(t *testing.T) {
	run(t, Rule{Policy: Evict}, nil, func(m *machine) {
		m.budget.Store(true)
		m.breaks("0 Xid79")
		m.inspect()
		m.breaks()
		m.inspect()
		m.budget.Store(false)
		time.Sleep(time.Hour)
		m.expect("nothing follows")
		if !m.pods.Active("0") {
			t.Error("the pod is gone")
		}
	})
}

func TestThePodsPolicyPrecedesTheNamespacesAndTheNodes(t *testing.T) {
	const policy, grace = deviceinfo.OnDeviceFailureAnnotation, deviceinfo.DeviceFailureGracePeriodAnnotation
	for name, test := range map[string]struct {
		rule       Rule
		namespace  map[string]string
		pod, grace string
		forbidden  bool // to read the namespace
		want       int  // seconds until it is evicted, -1 for never
		problem    string
	}{
		"the node's": {rule: Rule{Evict, 9 * time.Second}, want: 9},
		"the namespace's over the node's": {
			namespace: map[string]string{policy: "Evict", grace: "5s"}, rule: Rule{Ignore, 0}, want: 5,
		},
		"its policy alone": {
			namespace: map[string]string{policy: "Evict"}, rule: Rule{Ignore, 7 * time.Second}, want: 7,
		},
		"Ignore of the namespace": {
			namespace: map[string]string{policy: "Ignore"}, rule: Rule{Policy: Evict}, want: -1,
		},
		"the pod's over the namespace's": {
			pod: "Ignore", namespace: map[string]string{policy: "Evict"}, want: -1,
		},
		"the pod's, with its own time": {
			pod: "Evict", grace: "3s", namespace: map[string]string{grace: "5s"}, want: 3,
		},
		"the pod's, with the namespace's": {pod: "Evict", namespace: map[string]string{grace: "5s"}, want: 5},
		"the pod's, with the node's":      {pod: "Evict", rule: Rule{Ignore, 4 * time.Second}, want: 4},
		"an unknown policy": {
			pod: "Restart", rule: Rule{Evict, 2 * time.Second}, want: 2,
			problem: `annotation KubeDevice/OnDeviceFailure of the pod is ignored: "Restart" is none of Ignore, ` +
				`Evict and Replace`,
		},
		"a time that is none": {
			pod: "Evict", grace: "soon", rule: Rule{Ignore, 2 * time.Second}, want: 2,
			problem: `annotation KubeDevice/DeviceFailureGracePeriod of the pod is ignored: "soon" is no duration ` +
				`such as 90s`,
		},
		"a namespace that kubecri may not read": {
			forbidden: true, rule: Rule{Policy: Evict}, want: -1,
			problem: `what namespace "team" wants is not known: no; see deploy/rbac`,
		},
		"and a pod that speaks for itself": {forbidden: true, pod: "Evict", grace: "1s", want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, test.rule, test.namespace, func(m *machine) {
				if test.forbidden {
					m.client.PrependReactor("get", "namespaces",
						func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
				}
				m.wants("0", test.pod, test.grace)
				m.breaks("0 Xid79")
				text := strings.Join(m.inspect(), "\n")
				if said := strings.Contains(text, "DeviceFailurePolicy"); said != (test.problem != "") ||
					!strings.Contains(text, test.problem) {
					t.Errorf("at first:\n%s\nwant the problem %q", text, test.problem)
				}
				at := -1
				for second := range 300 {
					if !m.pods.Active("0") {
						at = second
						break
					}
					time.Sleep(time.Second)
					m.inspect()
				}
				if at != test.want {
					t.Errorf("the pod is evicted after %d seconds, want %d", at, test.want)
				}
			})
		})
	}
}

func TestADeviceIsKnownInAllGroupsThatTheSchedulerPutsItInto(t *testing.T) {
	run(t, Rule{Policy: Evict}, nil, func(m *machine) {
		m.breaks("3 Lost")
		const lost = `device resource/group/gpu/3, which container "main" holds, is unhealthy (Lost: broken)`
		m.expect("it fails", "evicted 3", "node Warning: device resource/group/gpu/3 is unhealthy (Lost: broken)",
			"pod 3 DeviceFailureEvicted: the pod is evicted: "+lost,
			"pod 3 DeviceUnhealthy: "+lost+"; the pod is evicted if it is so at "+time.Now().UTC().Format(time.RFC3339))
	})
}

func TestAPluginThatIsGoneSaysNothingOfItsDevices(t *testing.T) {
	run(t, Rule{Policy: Evict}, nil, func(m *machine) {
		m.source.set(nil, true)
		m.expect("the plugin leaves")
		m.expectCondition("the plugin leaves", "0", "")
		published, err := deviceinfo.DecodeUnhealthy(m.annotation)
		if err != nil || len(published) != 4 || published[0].Reason != "PluginGone" {
			t.Errorf("published is %+v, %v", published, err)
		}
		time.Sleep(time.Hour)
		m.expect("an hour later")
		m.breaks("0 Xid79")
		if text := strings.Join(m.inspect(), "\n"); !strings.Contains(text, "evicted 0") ||
			strings.Contains(text, "evicted 1") {
			t.Errorf("the plugin comes back with a device that has failed:\n%s", text)
		}
	})
}

func TestAPluginThatComesAndGoesDoesNotRestartTheGracePeriod(t *testing.T) {
	run(t, Rule{Evict, time.Minute}, nil, func(m *machine) {
		m.breaks("0 Xid79")
		m.inspect()
		for range 5 {
			time.Sleep(10 * time.Second)
			m.source.set(map[string]string{"0": "Xid79"}, true)
			m.expect("the plugin is away")
			m.breaks("0 Xid79")
			m.expect("and is back")
		}
		time.Sleep(10 * time.Second)
		m.expect("a minute after the failure", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
	})
}

// announced are the messages of the events on a node.
type announced []string

func (a *announced) AnnounceHealth(_, message string) { *a = append(*a, message) }

func (a *announced) AnnounceTaints(_, message string) { *a = append(*a, message) }

func TestAnEventOfManyDevicesStaysShort(t *testing.T) {
	var said announced
	tracker := NewTracker(nil, nil, &said)
	var many []unhealthy
	for i := range 20 {
		u := unhealthy{}
		u.Device, u.Name, u.Reason = fmt.Sprintf("resource/group/gpu/%02d", i), gpuName(fmt.Sprintf("%02d", i)), "Lost"
		many = append(many, u)
	}
	tracker.announce(corev1.EventTypeWarning, "unhealthy", many)
	if len(said) != 1 || !strings.HasSuffix(said[0], "gpu/07 and 12 more are unhealthy (Lost)") {
		t.Errorf("said %q", said)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	gpu0 types.ResourceName = "resource/group/gpu/0/cards"
	gpu1 types.ResourceName = "resource/group/gpu/1/cards"
)

func holding(gpu types.ResourceName) types.ContainerInfo {
	return types.ContainerInfo{
		DevRequests: types.ResourceList{"r": 1}, AllocateFrom: types.ResourceLocation{"r": gpu},
	}
}

// machine is a node with one pod, u, whose container main has gpu0, and a runtime in which a
// container takes two seconds to end.
type machine struct {
	t *testing.T

	mu         sync.Mutex
	allocation grants.Allocation
	containers []grants.RuntimeContainer
	answer     func(grants.Allocation) grants.Answer
	seal       string // of the pod
	gone       bool   // the pod is gone
	changed    chan struct{}
	stopped    int // calls of Stop
	stopErr    error
	refuseErr  error // of Refuse

	saying sync.Mutex
	said   []string
}

// run runs a test in a synctest bubble, in which time is fake.
func run(t *testing.T, story func(*machine, *Controller)) { runFrom(t, func(*machine) {}, story) }

// runFrom is run with a preparation of the machine before the controller starts.
func runFrom(t *testing.T, prepare func(*machine), story func(*machine, *Controller)) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{
			t: t, changed: make(chan struct{}),
			allocation: grants.Allocation{
				PodUID: "u", Namespace: "team", Name: "pod",
				Pending: map[string]grants.PendingReplacement{"main": {Since: time.Now()}},
				PodInfo: &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
					"main": holding(gpu0), "log": {},
				}},
			},
			containers: []grants.RuntimeContainer{
				{ID: "first", Name: "main", Encoded: string(gpu0)}, {ID: "other", Name: "log"},
			},
		}
		m.none()
		prepare(m)
		c := m.start()
		story(m, c)
	})
}

func (m *machine) start() *Controller {
	ctx, cancel := context.WithCancel(m.t.Context())
	c := New(Options{
		Checkpoint: m, Pods: m, Runtime: m, Admission: m, Events: m, Metrics: m,
	})
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	m.t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return c
}

// Replace implements Admission.
func (m *machine) Replace(_ context.Context, granted grants.Allocation) grants.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer := m.answer(granted)
	if answer.State == grants.AnswerTaken {
		m.allocation = answer.Allocation
		m.wake()
	}
	return answer
}

// Warn implements Events.
func (m *machine) Warn(pod *corev1.ObjectReference, reason, message string) {
	m.say("%s %s: %s", pod.Name, reason, message)
}

// ObserveReplacement implements Metrics.
func (m *machine) ObserveReplacement(taken bool) { m.say("taken=%v", taken) }

func (m *machine) say(format string, args ...any) {
	m.saying.Lock()
	defer m.saying.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

// wake notifies the controller of a change. The caller holds mu.
func (m *machine) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *machine) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
	m.wake()
}

// none returns no answer.
func (m *machine) none() {
	m.answer = func(a grants.Allocation) grants.Answer {
		return grants.Answer{State: grants.AnswerAbsent, Generation: a.Generation, Allocation: a}
	}
}

// answers makes the scheduler answer with a GPU.
func (m *machine) answers(generation int64, gpu types.ResourceName) {
	m.change(func() {
		m.seal = fmt.Sprint(generation)
		m.answer = func(a grants.Allocation) grants.Answer {
			if a.Generation >= generation {
				return grants.Answer{State: grants.AnswerAbsent, Generation: a.Generation, Allocation: a}
			}
			next := a
			next.Generation, next.Pending = generation, nil
			next.Leaving = map[string]types.ContainerInfo{"main": holding(gpu0)}
			next.PodInfo = &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": holding(gpu)}}
			return grants.Answer{State: grants.AnswerTaken, Generation: generation, Allocation: next}
		}
	})
	synctest.Wait()
}

// create creates a container as the kubelet does when the previous one has ended.
func (m *machine) create(id string, gpu types.ResourceName) {
	m.change(func() {
		m.containers = append(m.containers, grants.RuntimeContainer{ID: id, Name: "main", Encoded: string(gpu)})
	})
}

func (m *machine) Follow() ([]grants.Allocation, bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return []grants.Allocation{m.allocation}, true, m.changed
}

func (m *machine) EncodePart(a grants.Allocation, container string) (string, error) {
	return string(a.PodInfo.RunningContainers[container].AllocateFrom["r"]), nil
}

func (m *machine) Refuse(_ string, generation int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuseErr == nil {
		m.allocation.Refused = max(m.allocation.Refused, generation)
	}
	return m.refuseErr
}

func (m *machine) Release(podUID, container string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.say("released %s/%s", podUID, container)
	m.allocation.Leaving = nil
	m.wake()
	return nil
}

func (m *machine) Get(string) (pods.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return pods.Pod{Namespace: "team", Name: "pod", Seal: m.seal, Failure: pods.Failure{GraceSeconds: 7}}, true
}
func (m *machine) Active(string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.gone
}
func (m *machine) Check() error { return nil }
func (m *machine) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *machine) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string]grants.RuntimeState{"u": {Live: true, Containers: slices.Clone(m.containers)}}, nil
}

func (m *machine) Stop(ctx context.Context, id string, grace time.Duration) error {
	m.mu.Lock()
	m.stopped++
	err := m.stopErr
	m.mu.Unlock()
	if grace != 7*time.Second {
		m.t.Errorf("container %s may take %v", id, grace)
	}
	if err != nil {
		return err
	}
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.containers {
		if m.containers[i].ID == id {
			m.containers[i].Exited = true
		}
	}
	return nil
}

// expect compares the events since the last call.
func (m *machine) expect(when string, want ...string) {
	m.t.Helper()
	synctest.Wait()
	m.saying.Lock()
	defer m.saying.Unlock()
	if diff := cmp.Diff(want, m.said); diff != "" {
		m.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
	m.said = nil
}

func expectWanted(t *testing.T, when string, c *Controller, want ...deviceinfo.Replacement) {
	t.Helper()
	got, known, _ := c.Wanted()
	if diff := cmp.Diff(want, got); diff != "" || !known {
		t.Errorf("%s (known: %v) (-want +got):\n%s", when, known, diff)
	}
}

const replacedEvent = `pod DeviceReplaced: container "main" gets [device resource/group/gpu/1] instead of ` +
	`[device resource/group/gpu/0]; kubecri ends it and the kubelet starts it again`

func TestEndsOneContainerAndThenReleasesItsDevice(t *testing.T) {
	run(t, func(m *machine, c *Controller) {
		expectWanted(t, "at first", c, deviceinfo.Replacement{UID: "u", Containers: []string{"main"}})
		m.answers(1, gpu1)
		m.expect("the scheduler answers", "taken=true", replacedEvent)
		expectWanted(t, "the scheduler has answered", c)
		time.Sleep(2*time.Second - time.Millisecond)
		m.expect("while the container ends")
		time.Sleep(checkInterval + time.Millisecond)
		m.expect("it has ended", "released u/main")
		m.create("second", gpu1)
		time.Sleep(time.Hour)
		m.expect("nothing more")
		if m.stopped != 1 || m.containers[1].Exited || m.containers[2].Exited {
			t.Errorf("%d calls, containers are %+v", m.stopped, m.containers)
		}
	})
}

func TestAbsentContainerKeepsItsPreviousDeviceUntilTheNextOneRuns(t *testing.T) {
	run(t, func(m *machine, _ *Controller) {
		m.change(func() { m.containers[0].Exited = true })
		m.answers(1, gpu1)
		time.Sleep(time.Hour)
		m.expect("the kubelet waits to start it again", "taken=true", replacedEvent)
		m.create("late", gpu0) // its creation began before the answer
		time.Sleep(3 * time.Second)
		m.expect("it was created with the previous device", "released u/main")
		if last := m.containers[2]; !last.Exited {
			t.Errorf("and is not ended: %+v", last)
		}
	})
	run(t, func(m *machine, _ *Controller) {
		m.change(func() { m.containers[0].Exited = true })
		m.answers(1, gpu1)
		m.create("second", gpu1)
		time.Sleep(checkInterval)
		m.expect("it was created with the next device", "taken=true", replacedEvent, "released u/main")
	})
}

func TestRestartedProcessContinues(t *testing.T) {
	for name, prepare := range map[string]func(*machine){
		"the container was not ended": func(*machine) {},
		"the container has ended": func(m *machine) {
			m.containers[0].Exited = true
			m.create("next", gpu1)
		},
		"it cannot be ended at first":               func(m *machine) { m.stopErr = errors.New("unavailable") },
		"the next one exists, and the old one, too": func(m *machine) { m.create("next", gpu1) },
	} {
		t.Run(name, func(t *testing.T) {
			runFrom(t, func(m *machine) {
				m.allocation.Generation, m.allocation.Pending = 1, nil
				m.allocation.Leaving = map[string]types.ContainerInfo{"main": holding(gpu0)}
				m.allocation.PodInfo = &types.PodInfo{
					RunningContainers: map[string]types.ContainerInfo{"main": holding(gpu1)},
				}
				prepare(m)
			}, func(m *machine, _ *Controller) {
				time.Sleep(time.Minute)
				m.mu.Lock()
				m.stopErr = nil
				m.mu.Unlock()
				time.Sleep(time.Minute)
				m.expect("in the end", "released u/main")
				for _, c := range m.containers {
					if c.Exited != (c.ID == "first") {
						t.Errorf("container %+v", c)
					}
				}
			})
		})
	}
}

func TestReportsARefusedAnswerOnceAndRequestsAgain(t *testing.T) {
	run(t, func(m *machine, c *Controller) {
		m.change(func() {
			m.seal = "3"
			m.answer = func(a grants.Allocation) grants.Answer {
				return grants.Answer{
					State: grants.AnswerRefused, Generation: 3, Allocation: a,
					Reason: errors.New("the device is unhealthy, too"),
				}
			}
		})
		m.expect("it cannot be used", "taken=false", "pod DeviceReplacementRefused: cannot use the devices that "+
			"the scheduler allocated: the device is unhealthy, too")
		expectWanted(t, "then", c, deviceinfo.Replacement{
			UID: "u", Generation: 3, Refused: true, Containers: []string{"main"},
		})
		time.Sleep(time.Hour)
		m.expect("later")
		m.answers(4, gpu1)
		time.Sleep(time.Minute)
		m.expect("the next one can be used", "taken=true", replacedEvent, "released u/main")
	})
}

func TestARefusalIsNotPublishedBeforeItIsInTheCheckpoint(t *testing.T) {
	runFrom(t, func(m *machine) {
		m.seal, m.refuseErr = "1", errors.New("disk full")
		m.answer = func(a grants.Allocation) grants.Answer {
			return grants.Answer{
				State: grants.AnswerRefused, Generation: 1, Allocation: a, Reason: errors.New("it is another pod's"),
			}
		}
	}, func(m *machine, c *Controller) {
		expectWanted(t, "while the checkpoint cannot be written", c)
		m.change(func() { m.refuseErr = nil })
		synctest.Wait()
		expectWanted(t, "then", c, deviceinfo.Replacement{
			UID: "u", Generation: 1, Refused: true, Containers: []string{"main"},
		})
		if m.allocation.Refused != 1 {
			t.Errorf("generation %d is refused in the checkpoint", m.allocation.Refused)
		}
	})
}

func TestARestartedProcessStillRequestsOtherDevicesThanTheRefusedOnes(t *testing.T) {
	runFrom(t, func(m *machine) { m.allocation.Refused = 1 }, func(_ *machine, c *Controller) {
		expectWanted(t, "before the answer is read", c, deviceinfo.Replacement{
			UID: "u", Generation: 1, Refused: true, Containers: []string{"main"},
		})
	})
}

func TestWithdrawnRequestIsNotPublished(t *testing.T) {
	run(t, func(m *machine, c *Controller) {
		m.change(func() {
			m.allocation.Pending = map[string]grants.PendingReplacement{"main": {Withdrawn: true}, "log": {}}
		})
		synctest.Wait()
		expectWanted(t, "one container", c, deviceinfo.Replacement{UID: "u", Containers: []string{"log"}})
		m.change(func() { m.allocation.Pending = map[string]grants.PendingReplacement{"main": {Withdrawn: true}} })
		synctest.Wait()
		expectWanted(t, "none", c)
	})
}

func TestReportsAnAnswerTakenByContainerCreationOnce(t *testing.T) {
	run(t, func(m *machine, _ *Controller) {
		m.change(func() {
			m.allocation.Generation, m.allocation.Pending = 1, nil
			m.allocation.PodInfo = &types.PodInfo{
				RunningContainers: map[string]types.ContainerInfo{"main": holding(gpu1)},
			}
		})
		m.expect("taken", "taken=true", replacedEvent)
		m.change(func() {})
		m.expect("later")
	})
}

func TestDropsRequestsOfRemovedPods(t *testing.T) {
	run(t, func(m *machine, c *Controller) {
		if list, known, _ := c.Wanted(); !known || len(list) != 1 {
			t.Errorf("the node requests %v, known: %v", list, known)
		}
		m.change(func() { m.gone = true })
		m.answers(1, gpu1)
		if list, _, _ := c.Wanted(); len(list) != 0 {
			t.Errorf("the node still requests %v", list)
		}
		if m.allocation.Generation != 0 || len(m.said) != 0 {
			t.Errorf("the pod gets generation %d: %q", m.allocation.Generation, m.said)
		}
	})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	interval = 10 * time.Second
	grace    = 25 * time.Second
	gib      = 1 << 30
	gpu      = "resource/group/gpu/0"
)

// machine is a node of which one container is watched: "main" of pod train, which has 20 GiB of a
// GPU of 80 GiB.
type machine struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	*Controller

	mu       sync.Mutex
	pod      pods.Pod
	other    pods.Pod
	unsynced error // of the pods
	evicts   bool  // evictions succeed
	endErr   error
	did      []string
	counted  map[Action]int
}

func newMachine(t *testing.T, policy Policy) *machine {
	m := &machine{
		t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), evicts: true, counted: map[Action]int{},
		pod: pods.Pod{Namespace: "team", Name: "train"}, other: pods.Pod{Namespace: "team", Name: "other"},
	}
	m.Controller = New(Options{
		Usage: m, Interval: interval, Pods: m, Default: policy, GracePeriod: grace, Ender: m, Evictor: m, Events: m,
		Metrics: m, Clock: m.clock,
	})
	return m
}

func (m *machine) Latest() (*usage.Snapshot, <-chan struct{}) { return &usage.Snapshot{}, nil }

func (m *machine) Get(uid string) (pods.Pod, bool) {
	switch uid {
	case "train":
		return m.pod, true
	case "other":
		return m.other, true
	}
	return pods.Pod{}, false
}

func (m *machine) Check() error { return m.unsynced }

func (m *machine) do(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, fmt.Sprintf(format, args...))
}

func (m *machine) EndContainer(_ context.Context, id string) error {
	if m.endErr == nil {
		m.do("end %s", id)
	}
	return m.endErr
}

func (m *machine) Evict(_ context.Context, pod *corev1.ObjectReference, r devicehealth.EvictionReasons) bool {
	if m.evicts {
		m.do("evict %s %s", pod.Name, r.Evicted)
	} else {
		m.do("cannot evict %s %s", pod.Name, r.Blocked)
	}
	return m.evicts
}

func (m *machine) Warn(pod *corev1.ObjectReference, reason, message string) {
	m.do("event %s %s: %s", pod.Name, reason, message)
}

func (m *machine) ObserveShareExceeded(action Action) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted[action]++
}

// holder is a container that holds a share of 20 GiB and uses so many.
func holder(id, pod string, used device.Reading) usage.Container {
	return usage.Container{
		Identity: usage.Identity{PodUID: pod, Namespace: "team", Pod: pod, Name: "main", ID: id},
		Holds:    true, Share: device.Read(20 * gib), Consumption: usage.Consumption{Processes: 1, Memory: used},
	}
}

// reads has a reading an interval after the last one, in which the container uses so much.
func (m *machine) reads(used device.Reading) State { return m.readsAfter(interval, used) }

func (m *machine) readsAfter(pause time.Duration, used device.Reading) State {
	return m.readsAll(pause, holder("c", "train", used), holder("n", "other", device.Read(10*gib)))
}

func (m *machine) readsAll(pause time.Duration, containers ...usage.Container) State {
	m.clock.SetTime(m.clock.Now().Add(pause))
	m.review(m.t.Context(), &usage.Snapshot{Time: m.clock.Now(), Reports: true, Devices: []usage.Device{{
		Name: gpu, Resource: gpu + "/memory", MemoryTotal: device.Read(80 * gib), MemoryUsed: device.Read(70 * gib),
		Containers: containers,
	}}})
	m.running.Wait()
	return m.State("c", gpu)
}

// below, above and unknown are uses of the share.
var below, above, unknown = device.Read(20 * gib), device.Read(30 * gib), device.Reading{}

func TestAContainerWalksFromItsShareToItsEnd(t *testing.T) {
	statetest.Walk(t, "state.go", map[string]struct {
		policy Policy
		walk   func(*machine, func(State))
	}{
		"Within a reading shows more than the share -> Over": {End, func(m *machine, at func(State)) {
			at(m.reads(below))
			at(m.reads(above))
		}},
		"Over the grace period is over -> Warned": {End, func(m *machine, at func(State)) {
			for range 4 { // 0, 10, 20, 30 seconds
				at(m.reads(above))
			}
		}},
		"Over a reading shows no more than the share -> Within": {End, func(m *machine, at func(State)) {
			at(m.reads(above))
			at(m.reads(below))
		}},
		"Over its use is unknown -> Within": {End, func(m *machine, at func(State)) {
			at(m.reads(above))
			at(m.reads(unknown))
		}},
		"Over readings are missing -> Within": {End, func(m *machine, at func(State)) {
			at(m.reads(above))
			at(Within) // as the next reading finds it
			at(m.readsAfter(maxGap*interval+1, above))
			at(m.reads(above))
			at(m.reads(above))
		}},
		"Warned a later reading shows more, the policy is End -> Ended": {End, func(m *machine, at func(State)) {
			for range 5 {
				at(m.reads(above))
			}
		}},
		"Warned a later reading shows more, the policy is Evict -> Evicted": {Evict, func(m *machine, at func(State)) {
			for range 5 {
				at(m.reads(above))
			}
		}},
		"Warned the pod cannot be evicted -> Ended": {Evict, func(m *machine, at func(State)) {
			m.evicts = false
			for range 5 {
				at(m.reads(above))
			}
		}},
		"Warned a reading shows no more than the share -> Within": {End, func(m *machine, at func(State)) {
			for range 4 {
				at(m.reads(above))
			}
			at(m.reads(below))
		}},
		"Evicted it goes on for too long -> Ended": {Evict, func(m *machine, at func(State)) {
			for range 5 {
				at(m.reads(above))
			}
			for range 3 {
				at(m.reads(above))
			}
		}},
		"Evicted a reading shows no more than the share -> Within": {Evict, func(m *machine, at func(State)) {
			for range 5 {
				at(m.reads(above))
			}
			at(m.reads(below))
		}},
	}, func(t *testing.T, test struct {
		policy Policy
		walk   func(*machine, func(State))
	}) (states []State) {
		states = append(states, Within)
		test.walk(newMachine(t, test.policy), func(s State) { states = append(states, s) })
		return states
	})
}

// kinds returns the first words of what was done, without the texts of events.
func (m *machine) kinds() (kinds []string) {
	for _, did := range m.did {
		did, _, _ = strings.Cut(did, ":")
		kinds = append(kinds, did)
	}
	return kinds
}

func TestPodOrNodeSayWhatFollows(t *testing.T) {
	warned := "event train ShareExceeded"
	for name, test := range map[string]struct {
		node       Policy
		annotation string
		want       []string
	}{
		"the node says nothing":          {Ignore, "", []string{warned}},
		"the node ends containers":       {End, "", []string{warned, "end c", "event train ShareExceededEnded"}},
		"the node evicts pods":           {Evict, "", []string{warned, "evict train ShareExceededEvicted"}},
		"the pod wants to end":           {Ignore, "End", []string{warned, "end c", "event train ShareExceededEnded"}},
		"the pod wants to be evicted":    {End, "Evict", []string{warned, "evict train ShareExceededEvicted"}},
		"the pod is left alone":          {End, "Ignore", []string{warned}},
		"the pod says what is no policy": {Ignore, "Stop", []string{"event train ShareExceededPolicy", warned}},
		"it says so where the node ends": {End, "stop", []string{
			"event train ShareExceededPolicy", warned, "end c", "event train ShareExceededEnded",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, test.node)
			m.pod.OnShareExceeded = test.annotation
			for range 7 {
				m.reads(above)
			}
			if !slices.Equal(m.kinds(), test.want) {
				t.Errorf("with KubeDevice/OnShareExceeded %q, it did %q, want %q", test.annotation, m.did, test.want)
			}
		})
	}
}

func TestNothingFollowsFromWhatIsNotKnown(t *testing.T) {
	whole, foreign, part := holder("c", "train", above), holder("c", "train", above), holder("c", "train", above)
	whole.Share = device.Read(80 * gib)
	whole.Memory = device.Read(90 * gib) // the driver may count what it reserves
	foreign.Holds, foreign.Share = false, device.Read(0)
	part.Share = device.Reading{}
	stranger := holder("c", "stranger", above)
	for name, container := range map[string]usage.Container{
		"a container that has the device alone":  whole,
		"one that does not hold it":              foreign,
		"a share that is not counted in memory":  part,
		"a pod that is not known":                stranger,
		"a container that no process uses it of": holder("", "train", above),
	} {
		m := newMachine(t, End)
		for range 9 {
			m.readsAll(interval, container)
		}
		if len(m.did) > 0 {
			t.Errorf("%s: it did %q", name, m.did)
		}
	}
	m := newMachine(t, End)
	m.unsynced = errors.New("the pods are not known yet")
	for range 9 {
		m.reads(above)
	}
	if len(m.did) > 0 {
		t.Errorf("the pods are not known: it did %q", m.did)
	}
	m = newMachine(t, End)
	for range 9 { // what was between the readings is not known
		m.readsAfter(maxGap*interval+1, above)
	}
	if len(m.did) > 0 {
		t.Errorf("readings are missing: it did %q", m.did)
	}
	m = newMachine(t, End)
	for range 20 { // never two readings in a row
		m.reads(above)
		m.reads(unknown)
	}
	if len(m.did) > 0 {
		t.Errorf("every second reading shows more: it did %q", m.did)
	}
}

func TestAReadingThatIsOldIsNotActedUpon(t *testing.T) {
	m := newMachine(t, End)
	for range 4 {
		m.reads(above)
	}
	m.did = nil
	old := m.clock.Now().Add(interval)
	m.clock.SetTime(old.Add(maxGap*interval + time.Second))
	m.review(t.Context(), &usage.Snapshot{Time: old, Reports: true, Devices: []usage.Device{{
		Name: gpu, Resource: gpu + "/memory", MemoryTotal: device.Read(80 * gib),
		Containers: []usage.Container{holder("c", "train", above)},
	}}})
	if m.running.Wait(); len(m.did) > 0 {
		t.Errorf("it did %q", m.did)
	}
}

func TestWithoutAGracePeriodAThirdReadingEndsTheContainer(t *testing.T) {
	m := newMachine(t, End)
	m.GracePeriod = 0
	for i, want := range []State{Over, Warned, Ended} {
		if got := m.reads(above); got != want {
			t.Errorf("after reading %d the state is %v, want %v", i+1, got, want)
		}
	}
}

func TestAContainerThatCannotBeEndedIsTriedAgain(t *testing.T) {
	m := newMachine(t, End)
	m.endErr = errors.New("the runtime does not answer")
	for range 6 {
		m.reads(above)
	}
	if got := m.State("c", gpu); got != Warned || m.counted[ActionFailed] != 2 {
		t.Errorf("the state is %v after %v", got, m.counted)
	}
	m.endErr = nil
	if got := m.reads(above); got != Ended || m.counted[ActionEnded] != 1 || m.counted[ActionWarned] != 1 {
		t.Errorf("the state is %v after %v", got, m.counted)
	}
}

func TestAPodThatEndsAlreadyIsNotEvicted(t *testing.T) {
	m := newMachine(t, Evict)
	m.pod.Failure.Terminating = true
	for range 5 {
		m.reads(above)
	}
	if got := m.State("c", gpu); got != Ended || slices.Contains(m.kinds(), "evict train ShareExceededEvicted") {
		t.Errorf("the state is %v after %q", got, m.did)
	}
}

func TestTheEventSaysHowMuchAndWhatIsKnownOfNeighbours(t *testing.T) {
	for name, test := range map[string]struct {
		failed    []pods.Failed
		namespace string
		want      string
	}{
		"a neighbour that runs": {
			nil, "team", "; 1 other container shares the device, of which 10 GiB are free, and none has ended " +
				"with an error since. The driver does not report allocations that failed",
		},
		"one that has failed since": {
			[]pods.Failed{{Container: "main", ExitCode: 3, At: time.Unix(1e9, 0).Add(20 * time.Second)}}, "team",
			". Ended with an error since, which may be an allocation that failed: container \"main\" of pod " +
				"team/other (exit code 3)",
		},
		"one of another namespace": {
			[]pods.Failed{{Container: "main", ExitCode: 3, At: time.Unix(1e9, 0).Add(20 * time.Second)}}, "secret",
			"an allocation that failed: 1 in other namespaces",
		},
		"one that failed before": {
			[]pods.Failed{{Container: "main", ExitCode: 3, At: time.Unix(1e9, 0).Add(-time.Second)}}, "team",
			"none has ended with an error since",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, End)
			m.other.Failed = test.failed
			neighbour := holder("n", "other", device.Read(10*gib))
			neighbour.Namespace = test.namespace
			main := holder("c", "train", above)
			main.Contexts = 518 << 20
			for range 4 {
				m.readsAll(interval, main, neighbour)
			}
			const begins = `event train ShareExceeded: container "main" uses 30 GiB of the memory of device ` + gpu +
				`, 9.4 GiB more than its share of 20 GiB (518 MiB for the contexts of its processes do not count), ` +
				`since 2001-09-09T01:46:50Z; the container is ended if the next reading shows the same; ` +
				`1 other container`
			if len(m.did) != 1 || !strings.HasPrefix(m.did[0], begins) || !strings.Contains(m.did[0], test.want) ||
				strings.Contains(m.did[0], "secret") {
				t.Errorf("the events are %q,\nwant %q and %q", m.did, begins, test.want)
			}
		})
	}
}

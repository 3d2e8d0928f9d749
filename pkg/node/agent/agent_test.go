// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

const namespace = "kubedevice-system"

// machine is a Machine that notes what is done on it.
type machine struct {
	client   *fake.Clientset
	did      []string
	enrolled bool
	runs     bool
	changed  bool   // what Install reports, until Settle is called
	fails    error  // what Serve returns
	refuses  string // why Leave refuses
	leaving  bool   // a leave was cut off
	blocked  string // why Enrol refuses
	repairs  bool   // Enrol has something to do on a machine that is enrolled
	stuck    string // why a leave does not come to its end
	ended    chan struct{}
}

func (m *machine) Install() (bool, error)  { return m.changed, nil }
func (m *machine) Settle() error           { m.changed = false; return nil }
func (m *machine) Enrolled() (bool, error) { return m.enrolled, nil }
func (m *machine) Ended() <-chan struct{}  { return m.ended }
func (m *machine) Clean() error            { m.runs = false; return nil }

func (m *machine) Enrol(context.Context) (*enrolment.Report, error) {
	m.did = append(m.did, "enrol")
	switch {
	case m.leaving:
		return &enrolment.Report{Outcome: enrolment.Refused, Leaving: true}, nil
	case m.blocked != "":
		return &enrolment.Report{Outcome: enrolment.Refused, Reason: m.blocked, Facts: []enrolment.Fact{
			{Name: "disk", Finding: m.blocked, Risk: enrolment.Blocks, Advice: "make room"},
		}}, nil
	case m.enrolled && !m.repairs:
		return &enrolment.Report{Outcome: enrolment.Unchanged}, nil
	}
	m.enrolled = true
	return &enrolment.Report{Outcome: enrolment.Done}, nil
}

func (m *machine) Leave(_ context.Context, drain bool) (*enrolment.Report, error) {
	if drain {
		m.refuses = ""
	}
	m.did = append(m.did, "leave")
	if m.refuses != "" {
		return &enrolment.Report{Outcome: enrolment.Refused, Reason: m.refuses}, nil
	}
	if m.runs = false; m.stuck != "" {
		return &enrolment.Report{Outcome: enrolment.Stuck, Reason: m.stuck}, nil
	}
	m.enrolled, m.leaving = false, false
	return &enrolment.Report{Outcome: enrolment.Done}, nil
}

func (m *machine) Serve(_ context.Context, renew bool) error {
	if renew {
		m.did = append(m.did, "restart")
	}
	m.runs = m.runs || m.fails == nil
	return m.fails
}

// fixture is an agent on a node with these labels.
type fixture struct {
	*testing.T
	*Agent
	m *machine
}

func newFixture(t *testing.T, nodeLabels map[string]string) *fixture {
	t.Helper()
	m := &machine{client: fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: nodeLabels}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-3"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaveLease}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: EnrolmentLease}},
	)}
	return &fixture{t, New(Options{
		Node: "node-1", Selector: labels.SelectorFromSet(labels.Set{"devices": "true"}), Group: "gpus",
		Namespace: namespace, Client: m.client, Machine: m,
	}), m}
}

func (f *fixture) label(set map[string]string) {
	f.Helper()
	node, err := f.m.client.CoreV1().Nodes().Get(f.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	node.Labels = set
	if _, err := f.m.client.CoreV1().Nodes().Update(f.Context(), node, metav1.UpdateOptions{}); err != nil {
		f.Fatal(err)
	}
}

// expect has the agent take a step, which ends with an error that has that text, or with none, and
// compares what it did on the machine.
func (f *fixture) expect(want string, did ...string) {
	f.Helper()
	f.m.did = nil
	err := f.step(f.Context())
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		f.Errorf("the step ends with %v, want %q", err, want)
	}
	if !slices.Equal(f.m.did, did) {
		f.Errorf("it did %q, want %q", f.m.did, did)
	}
}

var selected = map[string]string{"devices": "true"}

func TestANodeIsEnrolledWhileItHasTheLabels(t *testing.T) {
	f := newFixture(t, nil)
	f.expect("")
	f.label(selected)
	f.expect("", "enrol")
	if !f.m.runs {
		t.Error("kubecri does not run")
	}
	f.expect("") // nothing more is done, however often it looks
	f.m.changed = true
	f.expect("", "restart")
	f.label(nil)
	f.expect("", "leave")
	f.label(selected)
	f.expect("", "enrol")
}

// It is not lost that a program was replaced, while another node has the slot or a restart fails.
func TestAProgramThatWasReplacedIsStartedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, selected)
		f.m.enrolled, f.m.changed, f.Serial = true, true, true
		other := New(f.Options)
		other.Node = "node-2"
		release, err := other.waitForSlot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.expect("at present")
		release()
		f.m.fails = errors.New("systemd is busy")
		f.expect("systemd is busy", "enrol", "restart")
		f.m.fails = nil
		f.expect("", "enrol", "restart")
		f.expect("")
	})
}

func TestAProgramThatWasReplacedIsStartedAfterARepair(t *testing.T) {
	f := newFixture(t, selected)
	f.m.enrolled, f.m.changed, f.m.repairs = true, true, true
	f.expect("", "enrol", "restart")
}

func TestKubecriIsNotStartedWhileALeaveIsStuck(t *testing.T) {
	f := newFixture(t, nil)
	f.m.enrolled, f.m.stuck = true, "the label is still there"
	f.expect("the label is still there", "leave")
	if err := f.keepServing(t.Context()); err != nil || f.m.runs {
		t.Errorf("kubecri runs: %v, %v", f.m.runs, err)
	}
	f.m.refuses = "device pods run: default/a"
	f.expect("default/a", "leave")
	f.m.runs = false
	if err := f.keepServing(t.Context()); err != nil || !f.m.runs {
		t.Errorf("kubecri runs: %v, %v", f.m.runs, err)
	}
}

func TestKubecriRunsWhileTheAPIServerIsAway(t *testing.T) {
	f := newFixture(t, selected)
	away := false
	f.m.client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("no route to host")
	})
	f.expect("", "enrol")
	f.m.runs, away = false, true // kubecri has ended, and so may the agent have
	f.Agent = New(f.Options)
	f.expect("no route to host")
	if !f.m.runs {
		t.Error("kubecri does not run, though the node is enrolled")
	}
	f.m.runs, f.m.enrolled = false, false
	f.expect("no route to host")
	if f.m.runs {
		t.Error("kubecri runs on a node that is not enrolled")
	}
}

func TestKubecriServesTheNodeWhilePodsKeepIt(t *testing.T) {
	f := newFixture(t, nil) // the agent was restarted, and the labels have gone meanwhile
	f.m.enrolled, f.m.refuses = true, "device pods run: default/a"
	f.expect("device pods run: default/a", "leave")
	if !f.m.runs {
		t.Error("kubecri does not run, while pods hold devices")
	}
	f.m.refuses = ""
	f.expect("", "leave")
	if f.m.runs {
		t.Error("kubecri runs on a node that has left")
	}
}

func TestALeaveThatWasCutOffIsFinishedFirst(t *testing.T) {
	f := newFixture(t, selected)
	f.m.leaving, f.m.enrolled = true, true
	f.expect("", "enrol", "leave", "enrol")
}

func TestReasonsAgainstAnEnrolmentAreReported(t *testing.T) {
	f := newFixture(t, selected)
	f.m.blocked = "3 MiB are free"
	f.expect("disk: 3 MiB are free: make room", "enrol")
}

func TestANodeOfTwoGroupsIsLeftAlone(t *testing.T) {
	f := newFixture(t, map[string]string{"devices": "true", enrolment.GroupLabel: "others"})
	f.expect(`is of the group "others"`)
}

func TestAllNodesAreGivenBackWhileTheLeaseIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, selected)
		f.expect("", "enrol")
		f.m.refuses = "device pods run: default/a"
		if err := Order(t.Context(), f.m.client, namespace, false, time.Minute); err != nil {
			t.Fatal(err)
		}
		f.expect("default/a", "leave")
		if err := Order(t.Context(), f.m.client, namespace, true, time.Minute); err != nil {
			t.Fatal(err)
		}
		f.expect("", "leave")
		time.Sleep(59 * time.Second)
		f.expect("")
		time.Sleep(2 * time.Second) // its holder has died
		f.expect("", "enrol")
		if err := Order(t.Context(), f.m.client, namespace, false, time.Minute); err != nil {
			t.Fatal(err)
		}
		f.expect("", "leave")
		if err := Order(t.Context(), f.m.client, namespace, false, 0); err != nil {
			t.Fatal(err)
		}
		f.expect("", "enrol")
	})
}

func TestOneNodeIsEnrolledAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, selected)
		f.Serial = true
		other := New(f.Options)
		other.Node = "node-2"
		release, err := other.waitForSlot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // it is renewed
		f.expect(`node "node-2" is enrolled or given back at present`)
		release()
		f.expect("", "enrol")

		if err := other.take(t.Context(), leaseTimeout); err != nil {
			t.Fatal(err)
		}
		f.label(nil)
		f.expect("at present")
		time.Sleep(leaseTimeout) // it has died
		f.expect("", "leave")
	})
}

// What changes is noticed at once, and what is in progress when the agent ends is finished.
// Each node may write the lease, also one that is compromised.
func TestNoNodeKeepsTheOthersFromBeingEnrolled(t *testing.T) {
	for name, test := range map[string]struct {
		ahead    time.Duration // of the renewal
		duration int32
		renews   bool
		names    []string // of the holder, each for 20 minutes; node-2 if there are none
		after    time.Duration
	}{
		"by a duration of 68 years":           {duration: math.MaxInt32, after: leaseTimeout},
		"by a renewal in 2200":                {ahead: 200 * 365 * 24 * time.Hour, duration: 60},
		"by a negative duration":              {duration: math.MinInt32},
		"by renewals without an end":          {duration: 60, renews: true, after: renewedLeaseTimeout},
		"by renewals with a very long period": {duration: math.MaxInt32, renews: true, after: renewedLeaseTimeout},
		"by the name of no node":              {duration: 60, renews: true, names: []string{"none"}},
		"by the names of two nodes, in turn": {
			duration: 60, renews: true, names: []string{"node-2", "node-3"},
			after: 20*time.Minute + renewedLeaseTimeout, // node-2 has had it for renewedLeaseTimeout then
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, selected)
				f.Serial = true
				names, began := append(test.names, "node-2")[:max(len(test.names), 1)], time.Now()
				write := func() {
					lease, err := f.m.client.CoordinationV1().Leases(namespace).Get(t.Context(), EnrolmentLease,
						metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					lease.Spec = coordinationv1.LeaseSpec{
						HolderIdentity:       &names[int(time.Since(began)/(20*time.Minute))%len(names)],
						LeaseDurationSeconds: &test.duration,
						RenewTime:            ptr.To(metav1.NewMicroTime(time.Now().Add(test.ahead))),
					}
					if _, err := f.m.client.CoordinationV1().Leases(namespace).Update(t.Context(), lease,
						metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				write()
				for waited := time.Duration(0); waited < test.after; waited += leaseTimeout / 2 {
					f.expect("at present")
					time.Sleep(leaseTimeout / 2)
					if test.renews {
						write()
					}
				}
				f.expect("", "enrol")
			})
		})
	}
}

func TestAllNodesAreNotGivenBackForYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, selected)
		if err := Order(t.Context(), f.m.client, namespace, false, 100*orderTimeout); err != nil {
			t.Fatal(err)
		}
		f.expect("")
		time.Sleep(orderTimeout)
		f.expect("", "enrol")
	})
}

func TestTheAgentWakesUpForItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.m.ended = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := f.Agent.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		f.label(selected)
		synctest.Wait()
		if !f.m.runs {
			t.Error("the agent has not noticed the label")
		}
		cancel()
		running.Wait()
	})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gpuName is the only resource of a GPU.
func gpuName(id string) types.ResourceName {
	return types.ResourceName("resource/group/gpu/" + id + "/cards")
}

// source is a device plugin with four GPUs, which a test makes unhealthy.
type source struct {
	mu      sync.Mutex
	reasons map[string]string // by GPU; "Gone" is not listed
	missing bool
	claimed error // by whom else
	changed chan struct{}
}

func (s *source) set(reasons map[string]string, missing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons, s.missing = reasons, missing
	close(s.changed)
	s.changed = make(chan struct{})
}

// claim has another plugin have the GPUs, or none any more.
func (s *source) claim(by error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = by
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) Sources() ([]plugins.Source, bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []plugins.Source{s}, true, s.changed
}

func (s *source) Late(types.ResourceName) (string, bool) { return "gpus", true }
func (s *source) Label() string                          { return "gpus" }
func (s *source) Firewall(bool) device.Firewall          { return device.Firewall{} }
func (s *source) Allocate(context.Context, plugins.Claim) (inject.Addition, error) {
	return inject.Addition{}, nil
}

func (s *source) State() plugins.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := plugins.State{Info: types.NewNodeInfo(), Reported: true, Serving: !s.missing && s.claimed == nil,
		Health: map[string]device.Health{}}
	if s.claimed != nil {
		state.Withheld = map[types.ResourceName]error{"vendor.example/gpu": s.claimed}
		return state
	}
	if s.missing {
		state.Err = fmt.Errorf("the plugin has left")
	}
	for i := range 4 {
		id := fmt.Sprint(i)
		if s.reasons[id] == "Gone" {
			continue
		}
		name := gpuName(id)
		state.Info.Capacity[name], state.Info.Allocatable[name] = 1, 1
		if reason := s.reasons[id]; reason != "" {
			of := "resource/group/gpu/" + id
			state.Health[of] = device.Health{Device: of, Reason: reason, Message: "broken"}
		}
		if s.missing || s.reasons[id] != "" {
			state.Info.Allocatable[name] = 0
		}
	}
	return state
}

// podsOf knows the pods of the API server, as a watch would.
type podsOf struct {
	mu      sync.Mutex
	pods    map[string]pods.Pod
	changed chan struct{}
}

func (p *podsOf) Get(uid string) (pods.Pod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod, known := p.pods[uid]
	return pod, known
}

func (p *podsOf) Active(uid string) bool { _, known := p.Get(uid); return known }
func (p *podsOf) Check() error           { return nil }

func (p *podsOf) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *podsOf) change(do func(map[string]pods.Pod)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p.pods)
	close(p.changed)
	p.changed = make(chan struct{})
}

type granted []grants.Allocation

func (g granted) Follow() ([]grants.Allocation, bool, <-chan struct{}) { return g, true, nil }

// machine is a node with four GPUs and a pod on each, called by the GPU's number. The API server
// outlives kubecri, which restart starts again.
type machine struct {
	t       *testing.T
	source  *source
	pods    *podsOf
	granted granted
	client  *fake.Clientset
	rule    Rule
	budget  atomic.Bool // of all pods: none may be evicted
	why     string      // why the node does not replace devices
	damped  bool        // the health of devices is damped

	warned atomic.Pointer[func(reason string)] // called for each event on a pod

	annotation string // of the node
	stop       func()

	mu   sync.Mutex
	said []string // events and evictions since the last look
}

func (m *machine) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

// run runs a story on a machine in a bubble of its own, in which time is fake.
func run(t *testing.T, rule Rule, namespace map[string]string, story func(*machine)) {
	runMachine(t, rule, namespace, false, story)
}

func runMachine(t *testing.T, rule Rule, namespace map[string]string, damped bool, story func(*machine)) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{
			t: t, rule: rule, damped: damped, source: &source{changed: make(chan struct{})},
			pods: &podsOf{pods: map[string]pods.Pod{}, changed: make(chan struct{})},
		}
		objects := []runtime.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: namespace}},
		}
		for i := range 4 {
			id := fmt.Sprint(i)
			name := gpuName(id)
			if i == 3 { // as a device scheduler that puts every device into a group
				name = "resource/group/switch/0/gpu/3/cards"
			}
			m.pods.pods[id] = pods.Pod{Namespace: "team", Name: id}
			m.granted = append(m.granted, grants.Allocation{
				PodUID: id, Namespace: "team", Name: id,
				PodInfo: &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
					"main": {AllocateFrom: types.ResourceLocation{"r": name}},
				}},
			})
			objects = append(objects, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: id, UID: apitypes.UID(id)},
			})
		}
		m.client = fake.NewClientset(objects...)
		m.client.PrependReactor("create", "pods", m.evict)
		m.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if patch := action.(clienttesting.PatchAction); patch.GetPatchType() != apitypes.StrategicMergePatchType ||
				patch.GetSubresource() != "status" {
				t.Errorf("patch of type %s of %q", patch.GetPatchType(), patch.GetSubresource())
			}
			return false, nil, nil
		})
		m.start()
		defer func() { m.stop() }()
		story(m)
	})
}

// RequestReplacement implements Replacer. As the checkpoint, it knows what was asked after a
// restart.
func (m *machine) RequestReplacement(
	podUID string, generation int64, containers []string,
) (since time.Time, err error) {
	i := slices.IndexFunc(m.granted, func(a grants.Allocation) bool { return a.PodUID == podUID })
	if now := m.granted[i].Generation; generation != now {
		m.t.Errorf("pod %s has generation %d, and generation %d is requested", podUID, now, generation)
	}
	asked := map[string]grants.PendingReplacement{}
	for _, name := range containers {
		ask, known := m.granted[i].Pending[name]
		if !known {
			ask.Since = time.Now()
		}
		since, asked[name] = ask.Since, ask
	}
	if len(asked) != len(m.granted[i].Pending) {
		m.say("requests %s: %v", podUID, containers)
	}
	m.granted[i].Pending = asked
	return since, nil
}

// restarts says that the containers of a pod are started again after every exit code.
func (m *machine) restarts(id string) {
	m.pods.change(func(all map[string]pods.Pod) {
		pod := all[id]
		pod.Containers = []pods.Container{{Name: "main", Restarts: true}}
		all[id] = pod
	})
}

// evict is the API server's answer to an eviction.
func (m *machine) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
	if uid := eviction.DeleteOptions.Preconditions.UID; uid == nil || string(*uid) != eviction.Name {
		m.t.Errorf("the eviction of pod %s is for the UID %v", eviction.Name, uid)
	}
	if m.budget.Load() {
		m.say("budget holds %s", eviction.Name)
		return true, nil, errBudget
	}
	m.say("evicted %s", eviction.Name)
	go m.pods.change(func(all map[string]pods.Pod) { delete(all, eviction.Name) })
	return true, nil, nil
}

// start starts what kubecri has of this package.
// Warn implements Events.
func (m *machine) Warn(pod *corev1.ObjectReference, reason, message string) {
	m.say("pod %s %s: %s", pod.Name, reason, message)
	if warned := m.warned.Load(); warned != nil {
		(*warned)(reason)
	}
}

// ObserveEviction implements Metrics.
func (m *machine) ObserveEviction(Outcome) {}

// AnnounceHealth implements NodeEvents.
func (m *machine) AnnounceHealth(eventType, message string) { m.say("node %s: %s", eventType, message) }

// AnnounceTaints implements NodeEvents.
func (m *machine) AnnounceTaints(eventType, message string) { m.say("node %s: %s", eventType, message) }

func (m *machine) start() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	manager := plugins.New("node-1", m.source)
	damper := plugins.NewDamper(manager)
	devices := Devices(manager)
	if m.damped {
		devices = damper
	}
	tracker := NewTracker(devices, m.granted, m)
	controller := NewController(Options{
		Tracker: tracker, Grants: m.granted, Pods: m.pods, Default: m.rule, Events: m, Metrics: m,
		Replacer: m, NotReplaced: m.why,
	}, m.client)
	var running sync.WaitGroup
	for _, part := range []func(context.Context){manager.Run, damper.Run, tracker.Run, controller.Run,
		func(ctx context.Context) {
			tracker.Seed(ctx, m.annotation)
			for { // as the advertiser
				list, known, changed := tracker.Unhealthy()
				if known {
					m.annotation = deviceinfo.EncodeUnhealthy(list, deviceinfo.MaxUnhealthyBytes)
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		}} {
		running.Go(func() { part(ctx) })
	}
	m.stop = func() { cancel(); running.Wait() }
	synctest.Wait()
}

func (m *machine) restart() {
	m.stop()
	m.start()
}

// inspect lets everything come to rest, passes the pods' conditions to the registry, and returns
// what was said since the last look, sorted.
func (m *machine) inspect() []string {
	m.t.Helper()
	synctest.Wait()
	m.pods.change(func(all map[string]pods.Pod) {
		for uid, pod := range all {
			now, err := m.client.CoreV1().Pods("team").Get(m.t.Context(), uid, metav1.GetOptions{})
			if err != nil {
				m.t.Fatal(err)
			}
			for _, c := range now.Status.Conditions {
				pod.Failure.Status, pod.Failure.Reason, pod.Failure.Message = string(c.Status), c.Reason, c.Message
			}
			all[uid] = pod
		}
	})
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	said := m.said
	m.said = nil
	slices.Sort(said)
	return said
}

// breaks makes GPUs unhealthy: by number, with the reason.
func (m *machine) breaks(reasons ...string) {
	set := map[string]string{}
	for _, text := range reasons {
		id, reason, _ := strings.Cut(text, " ")
		set[id] = reason
	}
	m.source.set(set, false)
}

// wants sets what a pod says.
func (m *machine) wants(id, policy, grace string) {
	m.pods.change(func(all map[string]pods.Pod) {
		pod := all[id]
		pod.Failure.Policy, pod.Failure.GracePeriod = policy, grace
		all[id] = pod
	})
}

// condition returns the condition of a pod: its status and reason, and when it changed, as seconds
// since the start of the bubble.
func (m *machine) condition(id string) string {
	now, err := m.client.CoreV1().Pods("team").Get(m.t.Context(), id, metav1.GetOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	text := ""
	for _, c := range now.Status.Conditions {
		text += fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
		if c.LastTransitionTime.After(time.Now()) || c.LastTransitionTime.IsZero() {
			m.t.Errorf("condition of pod %s since %v", id, c.LastTransitionTime)
		}
	}
	return text
}

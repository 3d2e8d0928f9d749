// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// machines are the machines of the tests below: two with four GPUs each, and one without GPUs.
func machines() []machine {
	return []machine{
		{name: "n0", pairs: 2, cpu: 8, zone: "a"}, {name: "n1", pairs: 2, cpu: 8, zone: "b"},
		{name: "n2", cpu: 8, zone: "b"},
	}
}

// question sends the engine a random question about the pods of the tests below.
func (f *fixture) question(ctx context.Context, random *rand.Rand) error {
	r := gpuRequest{count: random.IntN(5), cpu: random.Int64N(4)}
	if random.IntN(3) == 0 {
		r = gpuRequest{pairs: 1 + random.IntN(2)}
	}
	pod := newPod("queried", r)
	request := schedulerapi.WhatIfRequest{FitRequest: schedulerapi.FitRequest{
		Namespace: "default", Replicas: int32(1 + random.IntN(3)),
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations}, Spec: pod.Spec},
	}}
	for _, change := range []schedulerapi.Change{
		{Without: &schedulerapi.PodName{Namespace: "default", Name: "t0"}}, {WithNodeLike: "n1"},
		{Cordon: "n0"}, {Cordon: "n1/g1"},
	} {
		if random.IntN(3) == 0 {
			request.Changes = append(request.Changes, change)
		}
	}
	_, err := f.engine.WhatIf(ctx, request)
	if err == nil {
		_, err = f.engine.Why(ctx, schedulerapi.WhyRequest{
			Pod: schedulerapi.PodName{Namespace: "default", Name: "waits"},
		})
	}
	return err
}

// live is the comparable part of the state that a scheduling cycle reads.
type live struct {
	Nodes, Queue string
	Actions      int // of the API server's client
}

func (f *fixture) live() (live, []nodestate.Snapshot) {
	var l live
	var states []nodestate.Snapshot
	dump := f.scheduler.Cache.Dump()
	for _, machine := range machines() {
		node := dump.Nodes[machine.name]
		pods, err := f.shared.PodsOn(machine.name)
		if err != nil {
			f.Fatal(err)
		}
		view, err := f.shared.Nodes().View(f.Context(), node.Node(), pods)
		if err != nil {
			f.Fatal(err)
		}
		l.Nodes += fmt.Sprintln(machine.name, node.Generation, len(node.Pods), node.Requested, view.Devices.Resources(),
			len(view.Holders), view.Bound)
		states = append(states, f.shared.Nodes().Snapshot(node))
	}
	pending, summary := f.scheduler.SchedulingQueue.PendingPods()
	l.Queue = fmt.Sprint(len(pending), summary)
	l.Actions = len(f.client.Actions())
	return l, states
}

// 300 questions of all kinds change nothing that a scheduling cycle reads (nodes, reservations, the
// queue) and write nothing to the API server.
func TestQuestionsDoNotChangeTheLiveState(t *testing.T) {
	f := newFixture(t)
	f.populate()
	// A reservation that is not seen bound yet.
	reserved := newPod("reserved", gpuRequest{count: 1})
	f.create(reserved)
	holds := tenant{name: "reserved", node: machines()[1], gpus: []string{"g3"}}.pod()
	allocated, err := deviceinfo.PodAllocation(holds)
	if err != nil {
		t.Fatal(err)
	}
	f.shared.Nodes().Reserve("n1", reserved, allocation.NewHolder("reserved", allocated, request.Containers(holds)),
		holds.Annotations[deviceinfo.Annotation])
	before, states := f.live()
	random := rand.New(rand.NewPCG(1, 3))
	for range 300 {
		if err := f.question(t.Context(), random); err != nil {
			t.Fatal(err)
		}
	}
	after, _ := f.live()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the live state is not as it was (-before +after):\n%s", diff)
	}
	for i := range states {
		if !states[i].Holds() {
			t.Errorf("the state of node %s has changed", machines()[i].name)
		}
	}
}

// While pods come and go, and clients send questions, no device has two holders, and the scheduler
// places each pod that fits.
func TestAnswersQuestionsWhilePodsAreScheduled(t *testing.T) {
	f := newFixture(t)
	f.populate()
	go f.scheduler.Run(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range uint64(3) {
		clients.Go(func() {
			for random := rand.New(rand.NewPCG(i, 4)); ctx.Err() == nil; {
				if err := f.question(ctx, random); err != nil && ctx.Err() == nil &&
					!strings.Contains(err.Error(), "no pod") {
					t.Error(err)
				}
			}
		})
	}
	for i := range 30 {
		pod := newPod(fmt.Sprintf("p%d", i), gpuRequest{count: 1 + i%2})
		f.create(pod)
		f.await("pod "+pod.Name+" is bound", func() bool {
			is, err := f.engine.pods.Pods("default").Get(pod.Name)
			return err == nil && is.Spec.NodeName != ""
		})
		f.checkHolders()
		f.delete(pod.Name)
	}
	stop()
	clients.Wait()
}

// populate adds the machines, two tenants with a GPU each and a pod that waits.
func (f *fixture) populate() {
	f.Helper()
	for _, m := range machines() {
		if _, err := f.client.CoreV1().Nodes().Create(f.Context(), m.node(), metav1.CreateOptions{}); err != nil {
			f.Fatal(err)
		}
	}
	for i, m := range machines()[:2] {
		f.create(tenant{name: fmt.Sprintf("t%d", i), node: m, gpus: []string{"g0"}, cpu: 1}.pod())
	}
	f.create(newPod("waits", gpuRequest{count: 4}))
	f.await("the scheduler knows all", func() bool {
		dump := f.scheduler.Cache.Dump()
		pods := 0
		for _, node := range dump.Nodes {
			pods += len(node.Pods)
		}
		pending, _ := f.scheduler.SchedulingQueue.PendingPods()
		return len(dump.Nodes) == len(machines()) && pods == 2 && len(pending) == 1 &&
			f.shared.Nodes().Serves("nvidia.com/gpu")
	})
}

func (f *fixture) create(pod *v1.Pod) {
	f.Helper()
	if _, err := f.client.CoreV1().Pods(pod.Namespace).Create(f.Context(), pod, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	f.await("pod "+pod.Name+" is known", func() bool {
		_, err := f.engine.pods.Pods(pod.Namespace).Get(pod.Name)
		return err == nil
	})
}

// checkHolders checks that each device has one holder at most.
func (f *fixture) checkHolders() {
	f.Helper()
	pods, err := f.engine.pods.List(labels.Everything())
	if err != nil {
		f.Fatal(err)
	}
	holders := map[string]string{}
	for _, pod := range pods {
		allocated, err := deviceinfo.PodAllocation(pod)
		if err != nil {
			continue
		}
		for name := range grouptree.Holdings(allocated, request.Containers(pod)) {
			device := pod.Spec.NodeName + "/" + string(name)
			if other := holders[device]; other != "" {
				f.Errorf("%s and %s have %s", other, pod.Name, device)
			}
			holders[device] = pod.Name
		}
	}
}

// A search without steps left reports that its result may not be the smallest. The result is the
// one of preemption.
func TestStoppedSearchIsMarkedIncomplete(t *testing.T) {
	f := newFixture(t)
	end, err := f.engine.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	m := machine{name: "n0", pairs: 4, cpu: 100}
	p := problem{machines: []machine{m}, request: gpuRequest{count: 8}}
	for i, gpu := range m.gpus() {
		p.tenants = append(p.tenants, tenant{name: fmt.Sprintf("t%d", i), node: m, gpus: []string{gpu}})
	}
	for _, complete := range []bool{true, false} {
		sim := p.simulation(f)
		if !complete {
			sim.budget.steps = maxSteps - 100 // 255 sets are to be tried
		}
		c, err := sim.cycle(t.Context(), newPod("pod-"+fmt.Sprint(complete), p.request))
		if err != nil {
			t.Fatal(err)
		}
		why, err := c.why(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if end := why.Smallest.End; why.Smallest.Complete != complete || end == nil || len(end.Pods) != 8 {
			t.Errorf("complete: %v, want %v; %+v", why.Smallest.Complete, complete, why.Smallest)
		}
	}
}

// The handler rejects an invalid question with a reason and the status that the API server would
// use.
func TestHandlerRejectsInvalidQuestionsWithAReason(t *testing.T) {
	f := newFixture(t)
	f.populate()
	server := httptest.NewServer(f.engine.Handler())
	defer server.Close()
	spec := newPod("x", gpuRequest{}).Spec
	pod, err := json.Marshal(schedulerapi.FitRequest{Template: v1.PodTemplateSpec{Spec: spec}})
	if err != nil {
		t.Fatal(err)
	}
	template := strings.TrimSuffix(string(pod), "}")
	for _, test := range []struct {
		path, body string
		code       int
		text       string
	}{
		{"why", `{"pod":{"namespace":"default","name":"waits"}}`, 200, `"nodes":3,"reasons":[`},
		{"why", `{"pod":{"namespace":"default","name":"t0"}}`, 200, `"node":"n0"`},
		{"why", `{"pod":{"namespace":"default","name":"none"}}`, 404, `default/none`},
		{"why", `{"pdo":{}}`, 400, `unknown field`},
		{"why", `{} {}`, 400, "more after the question"},
		{"why", `{"within":600000}`, 400, "use up to 30000"},
		{"fit", string(pod), 200, `"fits":true`},
		{"fit", `{}`, 400, "template with containers"},
		{"fit", template + `,"replicas":1001}`, 400, "use up to 1000"},
		{"whatif", template + `,"changes":[{}]}`, 400, "one of without"},
		{"whatif", template + `,"changes":[{"cordon":"n9"}]}`, 400, `no node \"n9\"`},
		{"whatif", template + `,"changes":[{"cordon":"n0/g9"}]}`, 400, `no device \"g9\"`},
		{"whatif", template + `,"changes":[{"cordon":"n0/"}]}`, 400, `no device \"\"`},
		{"whatif", template + `,"changes":[{"withNodeLike":"n9"}]}`, 400, `no node \"n9\"`},
		{"whatif", template + `,"changes":[{"without":{"namespace":"a","name":"b"}}]}`, 400, `no pod \"a/b\"`},
		{"whatif", `{"pod":{"namespace":"default","name":"t0"}}`, 409, "bound to node"},
		{"whatif", `{"pod":{"namespace":"default","name":"waits"},"changes":[{"without":{"namespace":"default",` +
			`"name":"t1"}}]}`, 200, `"fits":true`},
		{"whatif", `{"pod":{"namespace":"default","name":"waits"},"changes":[{"withNodeLike":"n0"},` +
			`{"cordon":"n0/gpu/g2"}]}`, 200, `"node":"like-n0-1"`},
	} {
		response, err := http.Post(server.URL+schedulerapi.Prefix+test.path, "application/json",
			strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.code || !strings.Contains(string(text), test.text) {
			t.Errorf("%s %s: %d %s, %v; want %d with %s", test.path, test.body, response.StatusCode, text, err,
				test.code, test.text)
		}
	}
}

// The engine places replicas one after another, each with devices of its own. The first that would
// wait has reasons.
func TestReplicasSeeEarlierReplicas(t *testing.T) {
	f := newFixture(t)
	f.populate()
	spec := newPod("x", gpuRequest{count: 2}).Spec
	said, err := f.engine.Fit(t.Context(), schedulerapi.FitRequest{
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: spec},
		Replicas: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	devices := map[string]bool{}
	for _, pod := range said.Pods {
		for _, device := range pod.Containers[0].Devices {
			devices[pod.Node+"/"+device.Path] = true
		}
	}
	// g0 of each machine is taken, and with it the first pair.
	if said.Fits || said.Placed != 2 || said.Pods[0].Node == said.Pods[1].Node || len(devices) != 4 ||
		said.Why == nil || said.Why.Pod.Name != "x-2" || len(said.Why.Reasons) == 0 || said.Why.Smallest.End == nil {
		t.Errorf("placed %+v", said)
	}
}

// The engine ends one pod of a high priority rather than two of a low one. Preemption would end the
// two.
func TestPrefersFewerPodsToCheaperPods(t *testing.T) {
	f := newFixture(t)
	end, err := f.engine.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	m := machine{name: "n0", pairs: 2, cpu: 100}
	p := problem{machines: []machine{m}, request: gpuRequest{count: 2}, tenants: []tenant{
		{name: "large", node: m, gpus: []string{"g0", "g1"}, priority: 2},
		{name: "small-1", node: m, gpus: []string{"g2"}}, {name: "small-2", node: m, gpus: []string{"g3"}},
	}}
	c, err := p.simulation(f).cycle(t.Context(), newPod("queried", p.request))
	if err != nil {
		t.Fatal(err)
	}
	why, err := c.why(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found := why.Smallest.End; found == nil || len(found.Pods) != 1 || found.Pods[0].Name != "large" {
		t.Errorf("ends %+v", found)
	}
}

// Neither a large template nor many replicas of it fill the scheduler's memory.
func TestRejectsTooLargeTemplates(t *testing.T) {
	f := newFixture(t)
	f.populate()
	containers := make([]v1.Container, 2*request.MaxPodContainers)
	for i := range containers {
		containers[i].Name = fmt.Sprint(i)
	}
	large := map[string]string{"large": strings.Repeat("x", maxReplicated/1000)}
	fitRequest := func(n int, annotations map[string]string, replicas int32) schedulerapi.FitRequest {
		return schedulerapi.FitRequest{Replicas: replicas, Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
			Spec:       v1.PodSpec{Containers: containers[:n]},
		}}
	}
	for name, test := range map[string]struct {
		request schedulerapi.FitRequest
		text    string
	}{
		"as many containers as a pod may have": {fitRequest(request.MaxPodContainers, nil, 1), ""},
		"one more":                             {fitRequest(request.MaxPodContainers+1, nil, 1), "257 containers"},
		"too long an annotation": {fitRequest(1, map[string]string{
			deviceinfo.Annotation: strings.Repeat(" ", request.MaxRequestBytes+1),
		}, 1), "32769 bytes long"},
		"large once":             {fitRequest(1, large, 1), ""},
		"large for each replica": {fitRequest(1, large, 1000), "use fewer replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			made := f.engine.made.Load()
			_, err := f.engine.Fit(t.Context(), test.request)
			switch {
			case test.text == "" && err != nil:
				t.Error(err)
			case test.text == "":
			case !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), test.text):
				t.Errorf("error %v, want a bad request with %s", err, test.text)
			case f.engine.made.Load() > made:
				t.Error("the engine makes pods of it")
			}
		})
	}
}

// The handler rejects a short question that would take much memory before it decodes it.
func TestRejectsQuestionsWithTooManyValues(t *testing.T) {
	for _, value := range []string{"{}", "null"} {
		text := `{"template":{"spec":{"containers":[` + strings.Repeat(value+",", maxValues) + value + "]}}}"
		var question schedulerapi.FitRequest
		if err := read(strings.NewReader(text), &question); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("so many %s: error %v", value, err)
		}
		if len(question.Template.Spec.Containers) > 0 {
			t.Errorf("%d of so many %s are read", len(question.Template.Spec.Containers), value)
		}
	}
}

// The engine does not make a thousand pods when the first one fits no node.
func TestMakesAReplicaOnlyWhenItPlacesIt(t *testing.T) {
	f := newFixture(t)
	f.populate()
	said, err := f.engine.Fit(t.Context(), schedulerapi.FitRequest{
		Template: v1.PodTemplateSpec{Spec: newPod("x", gpuRequest{count: 5}).Spec}, Replicas: schedulerapi.MaxReplicas,
	})
	if err != nil || said.Placed != 0 || said.Replicas != schedulerapi.MaxReplicas {
		t.Fatalf("%+v, %v", said, err)
	}
	// The search for the smallest changes needs some more pods.
	if made := f.engine.made.Load(); made >= 100 {
		t.Errorf("%d pods were made", made)
	}
}

// After a question that panics, the engine answers the next ones.
func TestPanickingQuestionReleasesItsSlot(t *testing.T) {
	f := newFixture(t)
	f.populate()
	fails := func(why string, fail func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", why)
			}
		}()
		fail()
	}
	f.engine.profiles = nil // so that reading them panics
	fails("the first question", func() { _ = f.engine.answer(t.Context(), 0, func(*budget) error { return nil }) })
	f.engine.profiles = upstreamProfiles{}
	fails("a later question", func() { _ = f.engine.answer(t.Context(), 0, func(*budget) error { panic("question") }) })
	if err := f.engine.answer(t.Context(), 0, func(*budget) error { return nil }); err != nil {
		t.Errorf("the next question: %v", err)
	}
}

// The kubelet of the node serves the count, and nothing there reads the option.
func TestProposesToLeaveTopologyOutOnlyForSeveralDevices(t *testing.T) {
	node := machine{name: "n0", pairs: 1, cpu: 100}.node()
	node.Annotations = nil
	f := newFixture(t, node)
	fit := func(count int) *schedulerapi.Placements {
		pod := newPod("x", gpuRequest{count: count, cpu: 1, connected: true})
		said, err := f.engine.Fit(t.Context(), schedulerapi.FitRequest{
			Template: v1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, Replicas: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	if said := fit(1); !said.Fits {
		t.Errorf("one device: said %+v", said)
	}
	said := fit(2)
	if said.Fits || said.Why == nil || len(said.Why.Smallest.Relax) == 0 ||
		said.Why.Smallest.Relax[0].Text != "without the annotation's request gpu/gpu-generate-topology" {
		t.Errorf("two devices: said %+v", said)
	}
}

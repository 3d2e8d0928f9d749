// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gpu = "example.com/gpu"

func podOf(uid string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: containers},
	}
}

// named are containers that are not init containers.
func named(names ...string) []Container {
	var containers []Container
	for _, name := range names {
		containers = append(containers, Container{Name: name})
	}
	return containers
}

func requestingContainer(name, resourceName, quantity string) corev1.Container {
	list := corev1.ResourceList{
		corev1.ResourceName(resourceName): resource.MustParse(quantity),
		corev1.ResourceCPU:                resource.MustParse("1"),
	}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list}}
}

func TestSummaryOfAPod(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want Pod
	}{
		"a pod that requests CPU only requests nothing": {
			podOf(
				"u",
				corev1.Container{
					Name: "main",
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
					},
				},
			),
			Pod{Containers: named("main")},
		},
		"limits count": {
			podOf("u", requestingContainer("main", gpu, "2")),
			Pod{Containers: named("main"), Requests: map[string][]sdk.ResourceName{"main": {gpu}}},
		},
		"a request of none is no": {podOf("u", requestingContainer("main", gpu, "0")), Pod{Containers: named("main")}},
		"init containers count, in their order": {func() *corev1.Pod {
			pod := podOf("u", corev1.Container{Name: "main"})
			always := corev1.ContainerRestartPolicyAlways
			pod.Spec.InitContainers = []corev1.Container{
				requestingContainer("first", gpu, "1"), {Name: "side", RestartPolicy: &always},
			}
			return pod
		}(), Pod{
			Containers: []Container{
				{Name: "first", Init: true}, {Name: "side", Init: true, Always: true, Restarts: true}, {Name: "main"},
			},
			Requests: map[string][]sdk.ResourceName{"first": {gpu}},
		}},
		"the variables that it sets, however, but not what they are": {func() *corev1.Pod {
			pod := podOf("u", corev1.Container{Name: "main", Env: []corev1.EnvVar{
				{Name: "A", Value: "secret"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{}},
			}}, corev1.Container{Name: "more", EnvFrom: []corev1.EnvFromSource{{Prefix: "C"}}})
			return pod
		}(), Pod{Containers: named("main", "more"), Variables: map[string][]string{"main": {"A", "B"}}}},
		"a pod that has succeeded has ended": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Status.Phase = corev1.PodSucceeded
			return pod
		}(), Pod{Ended: true}},
		"a pod that has failed has ended": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Status.Phase = corev1.PodFailed
			return pod
		}(), Pod{Ended: true}},
		"containers that are started again after every exit code": {func() *corev1.Pod {
			always, onFailure := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure
			pod := podOf("u", corev1.Container{Name: "as-the-pod"}, corev1.Container{
				Name: "always", RestartPolicy: &always,
			}, corev1.Container{Name: "on-failure", RestartPolicy: &onFailure}, corev1.Container{
				Name: "by-rule", RestartPolicyRules: []corev1.ContainerRestartRule{{}},
			})
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
			return pod
		}(), Pod{Containers: []Container{
			{Name: "init", Init: true}, {Name: "as-the-pod", Restarts: true}, {Name: "always", Restarts: true},
			{Name: "on-failure"}, {Name: "by-rule"},
		}}},
		"how long a container may take to end": {func() *corev1.Pod {
			pod := podOf("u")
			seconds := int64(7)
			pod.Spec.TerminationGracePeriodSeconds = &seconds
			return pod
		}(), Pod{Failure: Failure{GraceSeconds: 7}}},
		"containers that were never created": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "runs", ContainerID: "containerd://1"}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "waits"}, {Name: "ran", RestartCount: 1},
				{Name: "ended", LastTerminationState: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{},
				}},
			}
			return pod
		}(), Pod{Unstarted: []string{"waits"}}},
		"its allocation, with or without a seal": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Annotations = map[string]string{"KubeDevice/DeviceInfo": "{}"}
			return pod
		}(), Pod{Allocation: "{}"}},
		"no scheduler has seen a static pod": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Annotations = map[string]string{
				"KubeDevice/DeviceInfo": "{}", "KubeDevice/Seal": "x", "kubernetes.io/config.mirror": "x",
			}
			return pod
		}(), Pod{}},
		"its policy for failing devices, and its condition": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Annotations = map[string]string{"KubeDevice/OnDeviceFailure": "Evict", "other": "x",
				"KubeDevice/DeviceFailureGracePeriod": "5s"}
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: "DevicesHealthy", Status: corev1.ConditionFalse, Reason: "Lost", Message: "it is"},
			}
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			return pod
		}(), Pod{Failure: Failure{Policy: "Evict", GracePeriod: "5s", Status: "False", Reason: "Lost",
			Message: "it is", Terminating: true}}},
		"its policy for shares, and its containers that have failed": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Annotations = map[string]string{"KubeDevice/OnShareExceeded": "End"}
			ended := func(code int32) corev1.ContainerState {
				return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: code, FinishedAt: metav1.Time{Time: time.Unix(int64(code), 0)},
				}}
			}
			running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
				{Name: "done", ContainerID: "a", State: ended(0)},
			}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "failed", ContainerID: "b", State: ended(2), LastTerminationState: ended(1)},
				{Name: "restarted", ContainerID: "c", State: running, LastTerminationState: ended(3)},
				{Name: "runs", ContainerID: "d", State: running},
			}
			return pod
		}(), Pod{OnShareExceeded: "End", Failed: []Failed{
			{"failed", 2, time.Unix(2, 0)}, {"restarted", 3, time.Unix(3, 0)},
		}}},
	} {
		test.pod.Spec.ServiceAccountName = "trainer"
		if test.want.Failure.GraceSeconds == 0 {
			test.want.Failure.GraceSeconds = 30
		}
		test.want.Namespace, test.want.Name, test.want.ServiceAccount = "default", "pod-u", "trainer"
		if test.want.Variables == nil && len(test.want.Containers) > 0 {
			test.want.Variables = map[string][]string{}
			for _, container := range test.want.Containers {
				test.want.Variables[container.Name] = nil
			}
		}
		if diff := cmp.Diff(test.want, summarize(test.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		stripped, err := strip(test.pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, summarize(stripped.(*corev1.Pod))); diff != "" {
			t.Errorf("%s, stripped (-want +got):\n%s", name, diff)
		}
	}
}

func TestSetsVariable(t *testing.T) {
	pod := Pod{Variables: map[string][]string{"main": {"A"}, "plain": nil}}
	for _, test := range []struct {
		container, variable string
		want                bool
	}{
		{"main", "A", true}, {"main", "B", false}, {"plain", "A", false},
		{"debugger", "A", true}, // no known spec has it: it may
	} {
		if got := pod.VariablesOf(test.container).Sets(test.variable); got != test.want {
			t.Errorf("container %s sets %s: %v, want %v", test.container, test.variable, got, test.want)
		}
	}
}

// watched returns a registry that watches a fake API server until the test ends.
func watched(t *testing.T, client *fake.Clientset) *Registry {
	t.Helper()
	r := NewRegistry(20 * time.Second)
	keepWatching(t, r, client)
	return r
}

func keepWatching(t *testing.T, r *Registry, client *fake.Clientset) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Watch(ctx, client, "node-1")
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// await waits for a state of the registry.
func await(t *testing.T, r *Registry, what string, good func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		_, _, changed := r.get("")
		if good() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%s: not so after 20s", what)
		}
	}
}

func TestWatchFollowsAPodsLife(t *testing.T) {
	client := fake.NewClientset(podOf("early", requestingContainer("main", gpu, "1")))
	r := watched(t, client)
	ctx := context.Background()
	if pod, err := r.Lookup(ctx, "early"); err != nil || pod.Name != "pod-early" {
		t.Fatalf("a pod from before the watch: %v, %v", pod, err)
	}
	await(t, r, "synced", func() bool { return r.Check() == nil })

	pods := client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, podOf("late"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if pod, err := r.Lookup(ctx, "late"); err != nil || pod.Name != "pod-late" {
		t.Fatalf("a pod that comes while it is waited for: %v, %v", pod, err)
	}
	if !r.Active("late") {
		t.Error("a new pod is not active")
	}
	ended := podOf("late")
	ended.Status.Phase = corev1.PodSucceeded
	if _, err := pods.UpdateStatus(ctx, ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, r, "a pod that has ended is not active", func() bool { return !r.Active("late") })
	if err := pods.Delete(ctx, "pod-early", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, r, "a deleted pod is not active", func() bool { return !r.Active("early") })
	if pod, known := r.Get("early"); !known || len(pod.Requests) == 0 {
		t.Error("a deleted pod was removed while its containers may still come")
	}
}

func TestLookupOfAnUnknownPodTimesOut(t *testing.T) {
	r := NewRegistry(time.Millisecond)
	if _, err := r.Lookup(context.Background(), "u"); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewRegistry(time.Hour).Lookup(ctx, "u"); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller has stopped waiting: got %v", err)
	}
}

func TestDetectsMissedDeletions(t *testing.T) {
	r := NewRegistry(0)
	r.noteObject(podOf("u"))
	r.forget(cache.DeletedFinalStateUnknown{Key: "default/pod-u", Obj: podOf("u")})
	if r.Active("u") {
		t.Error("still active")
	}
}

func TestForgetsDeletedPodsAfterAWhile(t *testing.T) {
	r := NewRegistry(0)
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r.clock = clock
	for _, uid := range []string{"a", "b"} {
		r.noteObject(podOf(uid))
	}
	r.remove("a")
	clock.SetTime(clock.Now().Add(2 * keepGone))
	r.remove("b")
	if _, known := r.Get("a"); known {
		t.Error("a is still known")
	}
	if _, known := r.Get("b"); !known {
		t.Error("b is forgotten already")
	}
}

// plugins are the device plugins of the node.
type plugins struct {
	names    []sdk.ResourceName
	complete bool
}

// ExtendedResources implements Plugins.
func (p *plugins) ExtendedResources() ([]sdk.ResourceName, bool) { return p.names, p.complete }

func TestReadingUnchangedDeviceResourcesAllocatesNothing(t *testing.T) {
	r, p := NewRegistry(0), &plugins{names: []sdk.ResourceName{"a.com/x", "b.com/y"}}
	r.Follow(p)
	for _, p.complete = range []bool{false, true} {
		if allocations := testing.AllocsPerRun(10, func() { r.DeviceResources() }); allocations > 0 {
			t.Errorf("plugins complete: %v: %v allocations", p.complete, allocations)
		}
	}
}

func TestDeviceResources(t *testing.T) {
	const nic = "example.com/nic"
	r, p := NewRegistry(0), &plugins{}
	r.Follow(p)
	published := func(names ...string) func() { return func() { r.NotePublished(names) } }
	report := func(complete bool, names ...sdk.ResourceName) func() {
		return func() { *p = plugins{names, complete} }
	}
	for _, step := range []struct {
		what string
		do   func()
		want []sdk.ResourceName
		all  bool
	}{
		{"no plugin has reported", func() {}, nil, false},
		{"one plugin of two has", report(false, nic), []sdk.ResourceName{nic}, false},
		{"the node is seen", published(gpu), []sdk.ResourceName{gpu, nic}, true},
		{"the node lost its annotation", published(), []sdk.ResourceName{gpu, nic}, true},
		{"all plugins are healthy", report(true, nic), []sdk.ResourceName{nic}, true},
		{"an old state of the node is seen", published(gpu), []sdk.ResourceName{nic}, true},
		{"a plugin breaks", report(false), []sdk.ResourceName{nic}, true},
		{"a plugin comes while another is broken", report(false, gpu), []sdk.ResourceName{gpu, nic}, true},
	} {
		step.do()
		got, all := r.DeviceResources()
		if diff := cmp.Diff(step.want, slices.Sorted(maps.Keys(got))); diff != "" || all != step.all {
			t.Errorf("%s: all=%v, want %v (-want +got):\n%s", step.what, all, step.all, diff)
		}
	}
}

func TestRequestsOfAPod(t *testing.T) {
	const nic = "example.com/nic"
	for name, test := range map[string]struct {
		requests   map[string][]sdk.ResourceName
		any, other bool
	}{
		"nothing":                     {nil, false, false},
		"a device":                    {map[string][]sdk.ResourceName{"main": {gpu}}, true, false},
		"something else":              {map[string][]sdk.ResourceName{"main": {nic}}, false, true},
		"both, in one container":      {map[string][]sdk.ResourceName{"main": {gpu, nic}}, true, true},
		"both, in several containers": {map[string][]sdk.ResourceName{"main": {gpu}, "side": {nic}}, true, true},
	} {
		pod, devices := Pod{Requests: test.requests}, map[sdk.ResourceName]bool{gpu: true}
		if pod.RequestsAny(devices) != test.any || pod.RequestsOther(devices) != test.other {
			t.Errorf("%s: any %v, other %v", name, pod.RequestsAny(devices), pod.RequestsOther(devices))
		}
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	before := NewRegistry(0)
	before.noteObject(podOf("stays", requestingContainer("main", gpu, "1")))
	before.noteObject(podOf("goes", corev1.Container{Name: "main"}))
	before.remove("goes")
	before.Follow(&plugins{[]sdk.ResourceName{gpu}, true})
	before.DeviceResources()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		before.KeepSaved(ctx, path)
	}()
	cancel()
	<-done

	after := NewRegistry(0)
	if err := after.Load(path); err != nil {
		t.Fatal(err)
	}
	pod, err := after.Lookup(ctx, "stays")
	if err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	if names, all := after.DeviceResources(); !pod.RequestsAny(names) || !all {
		t.Errorf("after a restart: %v of %v, all=%v", pod, names, all)
	}
	if _, known := after.Get("goes"); known {
		t.Error("a deleted pod is known again")
	}
	// The API server's list is authoritative.
	client := fake.NewClientset(podOf("new"))
	keepWatching(t, after, client)
	await(
		t,
		after,
		"the pod that is gone is not active",
		func() bool { return after.Check() == nil && !after.Active("stays") && after.Active("new") },
	)
}

func TestIgnoresSavedPodsWithoutContainers(t *testing.T) {
	r := NewRegistry(0)
	body := `{"pods":{"u":{"namespace":"default","name":"p","asks":{"main":["example.com/gpu"]}}}}`
	if err := r.remember([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if pod, known := r.Get("u"); known {
		t.Errorf("known: %v", pod)
	}
}

func TestCurrentPodsAreThoseOfTheAPIServer(t *testing.T) {
	r := NewRegistry(0)
	for _, uid := range []string{"stays", "deleted"} {
		r.set(uid, Pod{Name: uid})
	}
	if _, complete, _ := r.Current(); complete {
		t.Error("all pods are known before the API server has listed them")
	}
	_, _, changed := r.Current()
	r.remove("deleted")
	r.keepOnly(map[string]bool{"stays": true})
	select {
	case <-changed:
	default:
		t.Error("the channel is not closed")
	}
	current, complete, _ := r.Current()
	if diff := cmp.Diff(map[string]Pod{"stays": {Name: "stays"}}, current); diff != "" || !complete {
		t.Errorf("complete: %t (-want +got):\n%s", complete, diff)
	}
}

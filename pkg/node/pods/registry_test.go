// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"path/filepath"
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

func asking(name, resourceName, quantity string) corev1.Container {
	list := corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(quantity), corev1.ResourceCPU: resource.MustParse("1")}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list}}
}

func TestWhatIsRememberedOfAPod(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want Pod
	}{
		"a pod that asks for CPU only asks for nothing": {podOf("u", corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}), Pod{Containers: named("main")}},
		"limits count":            {podOf("u", asking("main", gpu, "2")), Pod{Containers: named("main"), Asks: map[string][]string{"main": {gpu}}}},
		"a request of none is no": {podOf("u", asking("main", gpu, "0")), Pod{Containers: named("main")}},
		"init containers count, in their order": {func() *corev1.Pod {
			pod := podOf("u", corev1.Container{Name: "main"})
			always := corev1.ContainerRestartPolicyAlways
			pod.Spec.InitContainers = []corev1.Container{asking("first", gpu, "1"), {Name: "side", RestartPolicy: &always}}
			return pod
		}(), Pod{Containers: []Container{{Name: "first", Init: true}, {Name: "side", Init: true, Always: true}, {Name: "main"}}, Asks: map[string][]string{"first": {gpu}}}},
		"a pod that has succeeded is over": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Status.Phase = corev1.PodSucceeded
			return pod
		}(), Pod{Over: true}},
		"a pod that has failed is over": {func() *corev1.Pod {
			pod := podOf("u")
			pod.Status.Phase = corev1.PodFailed
			return pod
		}(), Pod{Over: true}},
	} {
		test.want.Namespace, test.want.Name = "default", "pod-u"
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

// watched returns a registry that watches a made-up API server until the test ends.
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

// until waits until the registry is as the test wants it.
func until(t *testing.T, r *Registry, what string, good func() bool) {
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

func TestTheWatchFollowsAPodsLife(t *testing.T) {
	client := fake.NewClientset(podOf("early", asking("main", gpu, "1")))
	r := watched(t, client)
	ctx := context.Background()
	if pod, err := r.Lookup(ctx, "early"); err != nil || pod.Name != "pod-early" {
		t.Fatalf("a pod from before the watch: %v, %v", pod, err)
	}
	until(t, r, "synced", func() bool { return r.Check() == nil })

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
	over := podOf("late")
	over.Status.Phase = corev1.PodSucceeded
	if _, err := pods.UpdateStatus(ctx, over, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, r, "a pod that is over is not active", func() bool { return !r.Active("late") })
	if err := pods.Delete(ctx, "pod-early", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, r, "a deleted pod is not active", func() bool { return !r.Active("early") })
	if pod, known := r.Get("early"); !known || len(pod.Asks) == 0 {
		t.Error("a deleted pod was forgotten while its containers may be on their way")
	}
}

func TestAPodThatStaysUnknownIsAnErrorAfterAWait(t *testing.T) {
	r := NewRegistry(time.Millisecond)
	if _, err := r.Lookup(context.Background(), "u"); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewRegistry(time.Hour).Lookup(ctx, "u"); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller gave up: got %v", err)
	}
}

func TestADeletionThatTheWatchMissedIsADeletion(t *testing.T) {
	r := NewRegistry(0)
	r.note(podOf("u"))
	r.forget(cache.DeletedFinalStateUnknown{Key: "default/pod-u", Obj: podOf("u")})
	if r.Active("u") {
		t.Error("still active")
	}
}

func TestDeletedPodsAreForgottenInTheEnd(t *testing.T) {
	r := NewRegistry(0)
	now := time.Unix(0, 0)
	r.now = func() time.Time { return now }
	for _, uid := range []string{"a", "b"} {
		r.note(podOf(uid))
	}
	r.remove("a")
	now = now.Add(2 * keepGone)
	r.remove("b")
	if _, known := r.Get("a"); known {
		t.Error("a is still known")
	}
	if _, known := r.Get("b"); !known {
		t.Error("b is forgotten already")
	}
}

func TestResourcesStayWhileAPluginIsMissing(t *testing.T) {
	r := NewRegistry(0)
	for _, step := range []struct {
		names    []string
		complete bool
		want     map[string]bool
	}{
		{[]string{gpu}, true, map[string]bool{gpu: true}},
		{nil, false, map[string]bool{gpu: true}},
		{[]string{"example.com/nic"}, false, map[string]bool{gpu: true, "example.com/nic": true}},
		{[]string{"example.com/nic"}, true, map[string]bool{"example.com/nic": true}},
	} {
		r.SetDeviceResources(step.names, step.complete)
		got, _ := r.DeviceResources()
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%v complete=%v (-want +got):\n%s", step.names, step.complete, diff)
		}
	}
}

func TestWhatTheNodeHasPublishedCountsWhileAPluginIsMissing(t *testing.T) {
	const nic = "example.com/nic"
	r := NewRegistry(0)
	for _, step := range []struct {
		what string
		do   func()
		want map[string]bool
		told bool
	}{
		{"nobody has spoken", func() {}, map[string]bool{}, false},
		{"one plugin of two has", func() { r.SetDeviceResources([]string{nic}, false) }, map[string]bool{nic: true}, false},
		{"the node is seen", func() { r.NotePublished([]string{gpu}) }, map[string]bool{nic: true, gpu: true}, true},
		{"the node lost its annotation", func() { r.NotePublished(nil) }, map[string]bool{nic: true, gpu: true}, true},
		{"all plugins are well", func() { r.SetDeviceResources([]string{nic}, true) }, map[string]bool{nic: true}, true},
		{"an old state of the node is seen", func() { r.NotePublished([]string{gpu}) }, map[string]bool{nic: true}, true},
		{"a plugin breaks", func() { r.SetDeviceResources(nil, false) }, map[string]bool{nic: true}, true},
	} {
		step.do()
		got, told := r.DeviceResources()
		if diff := cmp.Diff(step.want, got); diff != "" || told != step.told {
			t.Errorf("%s: told=%v, want %v (-want +got):\n%s", step.what, told, step.told, diff)
		}
	}
}

func TestWhatIsKnownOutlivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	before := NewRegistry(0)
	before.note(podOf("stays", asking("main", gpu, "1")))
	before.note(podOf("goes", corev1.Container{Name: "main"}))
	before.remove("goes")
	before.SetDeviceResources([]string{gpu}, true)
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
	if names, told := after.DeviceResources(); len(pod.AsksFor(names)) != 1 || !told {
		t.Errorf("after a restart: %v of %v, told=%v", pod, names, told)
	}
	if _, known := after.Get("goes"); known {
		t.Error("a deleted pod came back")
	}
	// The API server has the last word.
	client := fake.NewClientset(podOf("new"))
	keepWatching(t, after, client)
	until(t, after, "the pod that is gone is not active", func() bool { return after.Check() == nil && !after.Active("stays") && after.Active("new") })
}

func TestAPodWithoutContainersInTheFileIsLeftToTheAPIServer(t *testing.T) {
	r := NewRegistry(0)
	if err := r.remember([]byte(`{"pods":{"u":{"namespace":"default","name":"p","asks":{"main":["example.com/gpu"]}}}}`)); err != nil {
		t.Fatal(err)
	}
	if pod, known := r.Get("u"); known {
		t.Errorf("known: %v", pod)
	}
}

func TestAPodIsMadeUpAgainFromWhatIsKnown(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	want := podOf("u", corev1.Container{Name: "main"})
	want.UID, want.Annotations = "", map[string]string{"a": "b"}
	want.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always}, {Name: "first"}}
	if diff := cmp.Diff(want, summarize(want).On("node-1", want.Annotations)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"side", "first"}, summarize(want).InitOrder()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

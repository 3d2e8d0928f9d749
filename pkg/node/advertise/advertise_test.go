// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	card0 types.ResourceName = "resource/group/gpu/0/cards"
	gpu   types.ResourceName = "example.com/gpu"
)

// gpus returns the inventory of a node with n GPUs, all well.
func gpus(n int) *types.NodeInfo {
	info := types.NewNodeInfoWithName("node-1")
	for i := range n {
		name := types.ResourceName(fmt.Sprintf("resource/group/gpu/%d/cards", i))
		info.Capacity[name], info.Allocatable[name] = 1, 1
	}
	for _, list := range []types.ResourceList{info.Capacity, info.Allocatable, info.KubeCap, info.KubeAlloc} {
		list[gpu] = int64(n)
	}
	return info
}

func annotationOf(t *testing.T, info *types.NodeInfo) string {
	t.Helper()
	value, err := deviceinfo.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func nodeWith(annotation string, extended map[string]string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{"other": "kept"}},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
		},
	}
	if annotation != "" {
		node.Annotations[deviceinfo.Annotation] = annotation
	}
	for name, quantity := range extended {
		node.Status.Capacity[corev1.ResourceName(name)] = resource.MustParse(quantity)
		node.Status.Allocatable[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return node
}

func TestThePatchTouchesOnlyWhatIsOursAndDiffers(t *testing.T) {
	unhealthy := gpus(2)
	unhealthy.Allocatable[card0], unhealthy.Allocatable[gpu], unhealthy.KubeAlloc[gpu] = 0, 1, 1
	two := annotationOf(t, gpus(2))
	quoted := func(value string) string { return strings.ReplaceAll(value, `"`, `\"`) }
	for name, test := range map[string]struct {
		node      *corev1.Node
		inventory *types.NodeInfo
		want      string
	}{
		"a new node gets annotation and counts": {nodeWith("", nil), gpus(2),
			`{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"` + quoted(two) +
				`"}},"status":{"allocatable":{"example.com/gpu":"2"},"capacity":{"example.com/gpu":"2"}}}`},
		"a node that is right is left alone": {nodeWith(two, map[string]string{"example.com/gpu": "2"}), gpus(2), ""},
		"counts that the kubelet set to zero are put back": {nodeWith(two, map[string]string{"example.com/gpu": "0"}),
			gpus(2),
			`{"status":{"allocatable":{"example.com/gpu":"2"},"capacity":{"example.com/gpu":"2"}}}`},
		"an annotation that somebody removed is put back": {nodeWith("", map[string]string{"example.com/gpu": "2"}),
			gpus(2),
			`{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"` + quoted(two) + `"}}}`},
		"an unhealthy device is in neither count": {nodeWith(annotationOf(t, unhealthy),
			map[string]string{"example.com/gpu": "2"}), unhealthy,
			`{"status":{"allocatable":{"example.com/gpu":"1"},"capacity":{"example.com/gpu":"1"}}}`},
		"when all plugins are gone, so is what they published": {nodeWith(two,
			map[string]string{"example.com/gpu": "2", "example.com/other": "1"}), types.NewNodeInfoWithName("node-1"),
			`{"metadata":{"annotations":{"KubeDevice/DeviceInfo":null}},"status":{"allocatable":{"example.com/gpu":null},"capacity":{"example.com/gpu":null}}}`},
		"a node without devices that never had any is left alone": {
			nodeWith("", map[string]string{"example.com/other": "1"}), types.NewNodeInfoWithName("node-1"), "",
		},
		"an unreadable annotation is replaced": {nodeWith("{", map[string]string{"example.com/gpu": "2"}),
			gpus(2),
			`{"metadata":{"annotations":{"KubeDevice/DeviceInfo":"` + quoted(two) + `"}}}`},
	} {
		value, err := annotation(test.node, test.inventory)
		if err != nil {
			t.Fatal(err)
		}
		got, err := patch(test.node, map[string]string{deviceinfo.Annotation: value},
			newWanted(test.node, test.inventory, nil, nil, true).counts, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnInventoryThatDoesNotFitTheAnnotationSaysSo(t *testing.T) {
	if _, err := annotation(nodeWith("", nil), gpus(20_000)); err == nil || !strings.Contains(err.Error(),
		`node "node-1", 20001 resources`) || !strings.Contains(err.Error(), "report fewer") {
		t.Errorf("too large by itself: %v", err)
	}
	node := nodeWith("", nil)
	node.Annotations["huge"] = strings.Repeat("x", deviceinfo.MaxBytes-100)
	if _, err := annotation(node, gpus(8)); err == nil || !strings.Contains(err.Error(), `node "node-1"`) {
		t.Errorf("too large with the others: %v", err)
	}
}

// source is an inventory that a test changes.
type source struct {
	mu      sync.Mutex
	now     *plugins.Inventory
	changed chan struct{}
	settled chan struct{}
}

func newSource(info *types.NodeInfo) *source {
	s := &source{now: &plugins.Inventory{Node: info}, changed: make(chan struct{}), settled: make(chan struct{})}
	close(s.settled)
	return s
}

func (s *source) Synced() <-chan struct{} { return s.settled }

func (s *source) Inventory() (*plugins.Inventory, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

func (s *source) set(info *types.NodeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = &plugins.Inventory{Node: info}
	close(s.changed)
	s.changed = make(chan struct{})
}

// advertised runs an advertiser until the test ends and returns the outcomes of its patches.
func advertised(t *testing.T, client *fake.Clientset, s Source) (a *Advertiser, patches <-chan error) {
	t.Helper()
	outcomes := make(chan error, 100)
	a = New("node-1", s, Options{Retry: time.Millisecond, Metrics: patchedFunc(func(err error) { outcomes <- err })})
	run(t, client, a)
	return a, outcomes
}

// run runs the advertiser until the test ends.
func run(t *testing.T, client *fake.Clientset, a *Advertiser) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx, client)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func next(t *testing.T, patches <-chan error) error {
	t.Helper()
	select {
	case err := <-patches:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("no patch after 20s")
		return nil
	}
}

func get(t *testing.T, client *fake.Clientset) *corev1.Node {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func TestTheNodeFollowsTheInventory(t *testing.T) {
	client := fake.NewClientset(nodeWith("", nil))
	s := newSource(gpus(1))
	_, patches := advertised(t, client, s)
	for _, n := range []int{1, 2, 0} {
		info := gpus(n)
		if n != 1 {
			s.set(info)
		}
		node := nodeWith("", nil)
		for count := int64(-1); node.Annotations[deviceinfo.Annotation] != annotationOf(t, info) ||
			count != int64(n); count = countOf(node, corev1.ResourceName(gpu)) {
			if err := next(t, patches); err != nil {
				t.Fatal(err)
			}
			node = get(t, client)
		}
		if node.Annotations["other"] != "kept" || node.Status.Capacity.Cpu().Value() != 4 {
			t.Errorf("%d GPUs: something that is not ours changed: %v", n, node)
		}
	}
}

func TestAnOlderEventDoesNotUndoAPatch(t *testing.T) {
	state := func(uid, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: apitypes.UID(uid), ResourceVersion: version}}
	}
	for name, test := range map[string]struct{ a, b, want *corev1.Node }{
		"the first state":         {nil, state("u", "9"), state("u", "9")},
		"a later state":           {state("u", "9"), state("u", "10"), state("u", "10")},
		"an older state":          {state("u", "10"), state("u", "9"), state("u", "10")},
		"a node made again":       {state("u", "10"), state("v", "9"), state("v", "9")},
		"a deleted node":          {state("u", "10"), nil, nil},
		"versions of other kinds": {state("u", "b"), state("u", "a"), state("u", "a")},
	} {
		if diff := cmp.Diff(test.want, later(test.a, test.b)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCountsThatTheKubeletRemovedAreRestored(t *testing.T) {
	client := fake.NewClientset(nodeWith("", nil))
	_, patches := advertised(t, client, newSource(gpus(2)))
	if err := next(t, patches); err != nil {
		t.Fatal(err)
	}
	node := get(t, client)
	node.Status.Capacity[corev1.ResourceName(gpu)] = resource.MustParse("0")
	if _, err := client.CoreV1().Nodes().UpdateStatus(context.Background(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		if err := next(t, patches); err != nil {
			t.Fatal(err)
		}
		if got := get(t, client).Status.Capacity[corev1.ResourceName(gpu)]; got.Value() == 2 {
			return
		}
	}
}

func TestANodeThatRegistersLaterIsPublished(t *testing.T) {
	client := fake.NewClientset()
	_, patches := advertised(t, client, newSource(gpus(1)))
	if _, err := client.CoreV1().Nodes().Create(context.Background(), nodeWith("", nil),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := next(t, patches); err != nil {
		t.Fatal(err)
	}
}

func TestAFailedPatchIsTriedAgainUntilItWorks(t *testing.T) {
	client := fake.NewClientset(nodeWith("", nil))
	failures := 3
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		if failures == 0 {
			return false, nil, nil
		}
		failures--
		return true, nil, errors.New("API server away")
	})
	a, patches := advertised(t, client, newSource(gpus(1)))
	for range 3 {
		if err := next(t, patches); err == nil {
			t.Fatal("no failure")
		}
	}
	if err := next(t, patches); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(20 * time.Second); a.Check() != nil; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("health after a success: %v", a.Check())
		}
	}
}

func TestAChangeCutsThePauseAfterFailuresShort(t *testing.T) {
	for name, event := range map[string]func(*source, chan<- *corev1.Node){
		"of the node":      func(_ *source, nodes chan<- *corev1.Node) { nodes <- nodeWith("", nil) },
		"of the inventory": func(s *source, _ chan<- *corev1.Node) { s.set(gpus(2)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(nodeWith("", nil))
				client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, apiruntime.Object, error) {
					return true, nil, errors.New("API server away")
				})
				tries := make(chan time.Time, 100)
				s := newSource(gpus(1))
				a := New("node-1", s, Options{Metrics: patchedFunc(func(error) { tries <- time.Now() })})
				ctx, cancel := context.WithCancel(t.Context())
				nodes := make(chan *corev1.Node)
				var following sync.WaitGroup
				following.Go(func() { (&controller{Advertiser: a, client: client}).run(ctx, nodes) })
				nodes <- nodeWith("", nil)
				last, interval := <-tries, time.Duration(0)
				for interval < 30*time.Second {
					try := <-tries
					last, interval = try, try.Sub(last)
				}
				changed := time.Now()
				for range 3 { // more changes do not put the next try off
					event(s, nodes)
					time.Sleep(a.options.Retry / 4)
				}
				after := (<-tries).Sub(changed)
				if least, most := a.options.Retry, a.options.Retry*3/2; after < least || after > most {
					t.Errorf("%v after the change, want %v to %v", after, least, most)
				}
				if next := (<-tries).Sub(changed); next < 30*time.Second {
					t.Errorf("the one after that %v after the change, as if nothing had failed before", next)
				}
				cancel()
				following.Wait()
			})
		})
	}
}

func TestNothingIsPublishedBeforeThePluginsHaveSpoken(t *testing.T) {
	published := annotationOf(t, gpus(2))
	client := fake.NewClientset(nodeWith(published, map[string]string{"example.com/gpu": "2"}))
	s := newSource(types.NewNodeInfoWithName("node-1"))
	s.settled = make(chan struct{})
	a, patches := advertised(t, client, s)
	if a.Check() == nil {
		t.Error("health says that the devices are published")
	}
	s.set(gpus(1))
	close(s.settled)
	if err := next(t, patches); err != nil {
		t.Fatal(err)
	}
	if got := get(t, client).Annotations[deviceinfo.Annotation]; got != annotationOf(t, gpus(1)) {
		t.Errorf("annotation %s", got)
	}
	if len(patches) > 0 {
		t.Error("the devices vanished for some time")
	}
}

func TestStaleDevicesAreReportedBeforeTheyAreRemoved(t *testing.T) {
	client := fake.NewClientset(nodeWith(annotationOf(t, gpus(2)), map[string]string{"example.com/gpu": "2"}))
	s := newSource(types.NewNodeInfoWithName("node-1"))
	s.settled = make(chan struct{})
	reported := make(chan []string, 100)
	outcomes := make(chan error, 100)
	run(t, client, New("node-1", s, Options{
		Metrics: patchedFunc(func(err error) { outcomes <- err }),
		Names:   publishedFunc(func(names []string) { reported <- names }),
	}))
	// The plugins have not spoken, and will have nothing to say.
	if diff := cmp.Diff([]string{string(gpu)}, <-reported); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	close(s.settled)
	for range 2 {
		if err := next(t, outcomes); err != nil {
			t.Fatal(err)
		}
	}
	if node := get(t, client); node.Annotations[deviceinfo.Annotation] != "" {
		t.Errorf("still published: %v", node.Annotations)
	}
}

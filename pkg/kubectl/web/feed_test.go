// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// nodeOf returns a node with healthy GPUs.
func nodeOf(t testing.TB, name string, gpus int) *corev1.Node {
	t.Helper()
	info := types.NewNodeInfoWithName(name)
	for i := range gpus {
		for _, list := range []types.ResourceList{info.Capacity, info.Allocatable} {
			types.AddGroupResource(list, fmt.Sprintf("gpu/gpu-%d/cards", i), 1)
		}
	}
	value, err := deviceinfo.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{deviceinfo.Annotation: value},
	}}
}

// podOf returns a pod that has a GPU of a node, or waits for one where the node has no name.
func podOf(t testing.TB, name, node string, gpu int) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: apitypes.UID("uid-" + name), Annotations: map[string]string{
				deviceinfo.Annotation: `{"runningcontainer":{"main":{"requests":{"gpu/a/cards":1}}}}`,
			},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}},
	}
	if node == "" {
		return pod
	}
	container := types.NewContainerInfo()
	resource := types.ResourceName(fmt.Sprintf("%s/gpu/gpu-%d/cards", types.DeviceGroupPrefix, gpu))
	container.DevRequests[resource], container.AllocateFrom[resource] = 1, resource
	info := types.NewPodInfo()
	info.Name, info.NodeName, info.RunningContainers["main"] = name, node, *container
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[deviceinfo.Annotation] = value
	return pod
}

// shown is what a page shows that has taken messages over.
type shown struct {
	Nodes, Pods map[string]string
}

// take does with a message what the page does.
func (s *shown) take(t *testing.T, m message) {
	t.Helper()
	if len(m.Nodes) > chunk {
		t.Errorf("a message has %d nodes, want at most %d", len(m.Nodes), chunk)
	}
	if m.Reset {
		*s = shown{map[string]string{}, map[string]string{}}
	}
	for _, text := range append(m.Nodes, m.Pods...) {
		var object struct{ Kind, Name, UID string }
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "Node" {
			s.Nodes[object.Name] = string(text)
		} else {
			s.Pods[object.UID] = string(text)
		}
	}
	for _, name := range m.GoneNodes {
		delete(s.Nodes, name)
	}
	for _, uid := range m.GonePods {
		delete(s.Pods, uid)
	}
}

// snapshotOf returns what a page shows after a snapshot alone.
func snapshotOf(t *testing.T, f *feed) (s shown) {
	t.Helper()
	for _, m := range f.snapshot() {
		s.take(t, m)
	}
	return s
}

// Random changes of 450 nodes, so that a snapshot is several messages, and of pods on them.
func TestASnapshotAndTheChangesAfterItAreTheNextSnapshot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	f := newFeed()
	objects := map[string]cluster.Change{} // that there are now
	change := func(count int) {
		var changes []cluster.Change
		for range count {
			c := cluster.Change{Gone: random.IntN(4) == 0}
			name, other := fmt.Sprint("n", random.IntN(450)), ""
			if random.IntN(3) > 0 {
				other = name
			}
			key := name
			if random.IntN(2) == 0 {
				c.Node = nodeOf(t, name, random.IntN(3))
			} else {
				key = fmt.Sprint("p", random.IntN(300))
				c.Pod = podOf(t, key, other, random.IntN(3))
			}
			if objects[key] = c; c.Gone {
				delete(objects, key)
			}
			changes = append(changes, c)
		}
		if err := f.change(changes); err != nil {
			t.Fatal(err)
		}
	}
	change(2000)
	snapshot, reader, err := f.join()
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot) < 2 || !snapshot[0].Reset || !snapshot[len(snapshot)-1].Complete {
		t.Fatalf("the snapshot is %d messages", len(snapshot))
	}
	var page shown
	for _, m := range snapshot {
		page.take(t, m)
	}
	waiting, most := 0, 0
	for step := range 100 {
		count := 1 + random.IntN(20)
		if step%25 == 0 {
			count = 2000
		}
		change(count)
		select {
		case texts := <-reader.changes:
			most = max(most, len(texts))
			for _, text := range texts {
				var m message
				if err := json.Unmarshal(text, &m); err != nil {
					t.Fatal(err)
				}
				page.take(t, m)
			}
		default: // nothing looks different
		}
		now := snapshotOf(t, f)
		if diff := cmp.Diff(now, page); diff != "" {
			t.Fatalf("the page shows something else (-snapshot +page):\n%s", diff)
		}
		waiting += len(now.Pods)
		if step%10 > 0 {
			continue
		}
		fresh := newFeed()
		if err := fresh.change(slices.Collect(maps.Values(objects))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(snapshotOf(t, fresh), page); diff != "" {
			t.Fatalf("the page shows what is not so (-the objects at once +page):\n%s", diff)
		}
	}
	if len(page.Nodes) < 100 || waiting == 0 || most < 2 {
		t.Errorf("only %d nodes, %d pods and changes of %d messages were compared", len(page.Nodes), waiting, most)
	}
}

func TestNothingIsSentWhenNothingLooksDifferent(t *testing.T) {
	f := newFeed()
	if err := f.change([]cluster.Change{{Node: nodeOf(t, "n", 1)}}); err != nil {
		t.Fatal(err)
	}
	_, reader, err := f.join()
	if err != nil {
		t.Fatal(err)
	}
	same := nodeOf(t, "n", 1)
	same.Labels = map[string]string{"new": "label"}
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain", UID: "plain"}}
	plain.Spec.NodeName = "n"
	if err := f.change([]cluster.Change{{Node: same}, {Pod: plain}}); err != nil {
		t.Fatal(err)
	}
	select {
	case texts := <-reader.changes:
		t.Errorf("it sends %s", texts)
	default:
	}
}

// An API server whose watches end, and which then refuses the user for a while.
func TestAPageShowsWhenAndWhyTheConnectionWasLost(t *testing.T) {
	client := fake.NewClientset(nodeOf(t, "n", 1))
	var mu sync.Mutex
	var refuse error
	var watches []*watch.FakeWatcher
	refused := func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return refuse != nil, nil, refuse
	}
	client.PrependReactor("list", "*", refused)
	client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		watches = append(watches, watch.NewFake())
		return true, watches[len(watches)-1], refuse
	})
	f := newFeed()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- f.follow(ctx, &cluster.Reader{Client: streams{client.CoreV1()}}) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
	}()
	<-f.known
	_, reader, err := f.join()
	if err != nil {
		t.Fatal(err)
	}
	next := func() (m message) {
		t.Helper()
		select {
		case texts := <-reader.changes:
			if err := json.Unmarshal(texts[0], &m); err != nil || len(texts) > 1 {
				t.Fatalf("it sends %q, %v", texts, err)
			}
		case <-ctx.Done():
			t.Fatal("it sends nothing")
		}
		return m
	}
	start := time.Now()
	mu.Lock()
	refuse = &url.Error{Op: "Get", URL: "https://127.0.0.1/?timeout=5m1s", Err: apierrors.NewUnauthorized("expired")}
	for _, w := range watches {
		w.Stop()
	}
	mu.Unlock()
	m := next()
	if m.Unread == nil || m.Unread.Why != "expired" || m.Unread.Since.Before(start) || m.Read {
		t.Fatalf("it sends %+v", m)
	}
	if first := f.snapshot()[0]; !cmp.Equal(first.Unread, m.Unread) {
		t.Errorf("a page that comes later reads %+v, want %+v", first.Unread, m.Unread)
	}
	mu.Lock()
	refuse = nil
	mu.Unlock()
	if m := next(); m.Unread != nil || !m.Read {
		t.Errorf("when it is read again it sends %+v", m)
	}
	if first := f.snapshot()[0]; first.Unread != nil {
		t.Errorf("a page that comes after that reads %+v", first.Unread)
	}
}

func TestAReaderThatIsTooSlowIsDroppedAndTheOthersAreNot(t *testing.T) {
	f := newFeed()
	_, slow, err := f.join()
	if err != nil {
		t.Fatal(err)
	}
	_, quick, err := f.join()
	if err != nil {
		t.Fatal(err)
	}
	for i := range backlog + 1 {
		if err := f.change([]cluster.Change{{Node: nodeOf(t, "n", i+1)}}); err != nil {
			t.Fatal(err)
		}
		if _, ok := <-quick.changes; !ok {
			t.Fatal("the quick reader is dropped")
		}
	}
	for range backlog {
		<-slow.changes
	}
	if _, ok := <-slow.changes; ok {
		t.Errorf("a reader has more than %d changes", backlog)
	}
	f.leave(slow)
	f.leave(quick)
	if len(f.readers) != 0 {
		t.Errorf("%d readers are left", len(f.readers))
	}
}

func TestOneReaderTooManyIsRefused(t *testing.T) {
	f := newFeed()
	for range maxReaders {
		if _, _, err := f.join(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.join(); err == nil {
		t.Error("it is not refused")
	}
}

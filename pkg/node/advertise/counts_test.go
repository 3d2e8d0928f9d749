// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// podsOf are pods that request GPUs.
type podsOf struct {
	mu      sync.Mutex
	gpus    int64
	known   bool
	changed chan struct{}
}

func newPods(gpus int64, known bool) *podsOf {
	return &podsOf{gpus: gpus, known: known, changed: make(chan struct{})}
}

func (p *podsOf) Counts() (map[string]int64, bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return map[string]int64{string(gpu): p.gpus}, p.known, p.changed
}

func (p *podsOf) set(gpus int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gpus, p.known = gpus, known
	close(p.changed)
	p.changed = make(chan struct{})
}

func TestACountDoesNotFallBelowWhatPodsRequest(t *testing.T) {
	away := func(n int) *types.NodeInfo { return with(types.NewNodeInfoWithName("node-1"), gpu, n, n) }
	for name, test := range map[string]struct {
		now        int64 // that the node has
		inventory  *types.NodeInfo
		requested  int64
		pinned     bool // the count may not fall
		wantCounts int64
	}{
		"no pod requests devices":                     {8, away(8), 0, false, 0},
		"the plugin is away":                          {8, away(8), 3, false, 3},
		"it is away, and pods are not known":          {8, away(8), 0, true, 8},
		"devices have vanished":                       {8, gpus(2), 5, false, 5},
		"fewer are requested than there are":          {8, gpus(6), 5, false, 6},
		"the kubelet has set the count to zero":       {0, away(8), 3, false, 3},
		"a count that rises while pods are not known": {2, gpus(8), 0, true, 8},
		"more are requested than there ever were":     {8, gpus(8), 1000, false, 8},
		"and the plugin is away":                      {8, away(8), math.MaxInt64, false, 8},
		"and had more before":                         {8, gpus(4), 1000, false, 8},
	} {
		node := nodeWith("", map[string]string{string(gpu): strconv.FormatInt(test.now, 10)})
		got := newWanted(node, test.inventory, nil, map[string]int64{string(gpu): test.requested}, !test.pinned).counts
		if diff := cmp.Diff(map[corev1.ResourceName]int64{corev1.ResourceName(gpu): test.wantCounts}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The status has each device as often as it counts, and the annotation has the devices.
func TestAVirtualDeviceCountsSeveralTimesInTheStatusAlone(t *testing.T) {
	for name, test := range map[string]struct {
		now, healthy, requested, want int64
	}{
		"all devices are healthy":                {0, 8, 0, 80},
		"a device is unhealthy":                  {80, 7, 0, 70},
		"pods request more than what is healthy": {80, 2, 45, 45},
		"pods request more than there ever were": {80, 8, 1000, 80},
	} {
		node := nodeWith("", map[string]string{string(gpu): strconv.FormatInt(test.now, 10)})
		inventory := with(types.NewNodeInfoWithName("node-1"), gpu, 8, int(8-test.healthy))
		w := newWanted(node, inventory, VirtualDevices{gpu: 10}, map[string]int64{string(gpu): test.requested}, true)
		if got := w.counts[corev1.ResourceName(gpu)]; got != test.want || w.info.Capacity[gpu] != 8 {
			t.Errorf("%s: %d of %d devices, want %d of 8", name, got, w.info.Capacity[gpu], test.want)
		}
	}
}

func TestTheCountsFollowThePodsWhileAPluginIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		patches := 0
		pods := newPods(3, false)
		s := newSource(gpus(8))
		followed(t, client, s, Options{Pods: pods, Metrics: patchedFunc(func(error) { patches++ })},
			func(_ *Advertiser, nodes chan<- *corev1.Node) {
				nodes <- nodeWith("", nil)
				pass(2 * Gap)
				for _, story := range []struct {
					what string
					do   func()
					want view
				}{
					{
						"the plugin leaves, and the pods are not known", func() {
							s.set(with(types.NewNodeInfoWithName("node-1"), gpu, 8, 8))
						}, shows(0, 8, none, none),
					},
					{"the pods are known", func() { pods.set(3, true) }, shows(0, 3, none, none)},
					{"one that was bound before comes", func() { pods.set(4, true) }, shows(0, 4, none, none)},
					{"three are over", func() { pods.set(1, true) }, shows(0, 1, none, none)},
					{"all are", func() { pods.set(0, true) }, shows(0, 0, none, none)},
					{"the plugin is back", func() { s.set(gpus(8)) }, shows(8, 8, none, none)},
				} {
					story.do()
					pass(2 * Gap)
					if diff := cmp.Diff(story.want, viewOf(t, get(t, client))); diff != "" {
						t.Errorf("%s (-want +got):\n%s", story.what, diff)
					}
				}
				patches = 0
				for gpus := range int64(8) {
					pods.set(gpus, true)
				}
				synctest.Wait()
				if patches > 0 {
					t.Errorf("%d patches for pods that come while all is well", patches)
				}
			})
	})
}

// The kubelet publishes what a placeholder plugin lists there.
func TestCountsOfTheKubeletAreNotChanged(t *testing.T) {
	for name, inventory := range map[string]*types.NodeInfo{
		"a node with the devices":   gpus(3),
		"a node that has none left": types.NewNodeInfoWithName("node-1"),
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(annotationOf(t, gpus(2)), map[string]string{"example.com/gpu": "1"})
			value, err := annotation(node, inventory)
			if err != nil {
				t.Fatal(err)
			}
			counts := newWanted(node, inventory, nil, nil, true).counts
			counts["example.com/other"] = 5
			body, err := patch(node, map[string]string{deviceinfo.Annotation: value}, counts,
				kubeletCounts(gpu))
			if err != nil {
				t.Fatal(err)
			}
			const status = `"status":{"allocatable":{"example.com/other":"5"},"capacity":{"example.com/other":"5"}}}`
			if !strings.HasSuffix(string(body), status) {
				t.Errorf("the patch is %s", body)
			}
		})
	}
}

func TestCountsThatTheKubeletRemovedAreRestoredBeforePluginsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := nodeWith(annotationOf(t, gpus(8)), map[string]string{string(gpu): "0"})
		client := fake.NewClientset(node)
		s := newSource(types.NewNodeInfoWithName("node-1"))
		s.settled = make(chan struct{})
		followed(t, client, s, Options{Pods: newPods(0, false)}, func(a *Advertiser, nodes chan<- *corev1.Node) {
			nodes <- node
			synctest.Wait()
			if diff := cmp.Diff(shows(8, 8, none, none), viewOf(t, get(t, client))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if a.Check() == nil {
				t.Error("health says that the devices are published")
			}
			s.set(gpus(4))
			close(s.settled)
			pass(2 * Gap)
			if diff := cmp.Diff(shows(4, 8, none, none), viewOf(t, get(t, client))); diff != "" {
				t.Errorf("with pods that are not known (-want +got):\n%s", diff)
			}
		})
	})
}

func TestANodeThatIsCreatedAgainIsPublishedInTwoPatchesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		followed(t, client, newSource(gpus(8)), Options{}, func(_ *Advertiser, nodes chan<- *corev1.Node) {
			nodes <- nodeWith("", nil)
			pass(2 * Gap)
			again := nodeWith("", nil)
			again.UID = "another"
			if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), again, ""); err != nil {
				t.Fatal(err)
			}
			nodes <- again
			synctest.Wait()
			for _, want := range []view{shows(0, 8, none, none), shows(8, 8, none, none)} {
				if diff := cmp.Diff(want, viewOf(t, get(t, client))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				pass(Gap)
			}
		})
	})
}

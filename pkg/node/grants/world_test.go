// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what the runtime and the API server have.
type world struct {
	mu     sync.Mutex
	pods   map[string]Seen
	active map[string]bool
	err    error
	asked  int
	boot   string // of the machine
}

func newWorld() *world {
	return &world{boot: "first boot", pods: map[string]Seen{}, active: map[string]bool{}}
}

func (w *world) Pods(context.Context) (map[string]Seen, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	seen := map[string]Seen{}
	for uid, pod := range w.pods {
		seen[uid] = pod
	}
	return seen, w.err
}

func (w *world) isActive(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active[uid]
}

// run makes the pod live in the runtime, and in the API server.
func (w *world) run(g Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[g.PodUID] = Seen{Live: true, Grant: &g}
	w.active[g.PodUID] = true
}

// stop ends the pod in the runtime, and unless it stays there, in the API server.
func (w *world) stop(uid string, staysActive bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[uid] = Seen{Grant: w.pods[uid].Grant}
	w.active[uid] = staysActive
}

func open(t *testing.T, w *world) (*Record, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grants")
	return openAt(t, w, path), path
}

func openAt(t *testing.T, w *world, path string) *Record {
	t.Helper()
	r := New(path, w.boot, w, w.isActive)
	t.Cleanup(func() { r.Close() })
	return r
}

// restart returns the record as the next process has it, after this one was killed.
func restart(t *testing.T, w *world, r *Record) *Record {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return openAt(t, w, r.path)
}

func container(quantities map[types.ResourceName]int64) types.ContainerInfo {
	info := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
	for name, quantity := range quantities {
		info.DevRequests["ask/"+name] = quantity
		info.AllocateFrom["ask/"+name] = name
	}
	return info
}

// wants returns a grant of the quantities to the pod's only container.
func wants(uid string, quantities map[types.ResourceName]int64) Grant {
	return Grant{PodUID: uid, Namespace: "default", Name: "pod-" + uid, Decision: &types.PodInfo{
		Name: "pod-" + uid, NodeName: "node-1",
		RunningContainers: map[string]types.ContainerInfo{"main": container(quantities)},
	}}
}

const (
	cards0  types.ResourceName = "resource/group/gpu/g0/cards"
	cards1  types.ResourceName = "resource/group/gpu/g1/cards"
	memory0 types.ResourceName = "resource/group/gpu/g0/memory"
	enum0   types.ResourceName = "resource/group/gpu/g0/enumType"
)

// node is what the node has.
var node = map[types.ResourceName]int64{cards0: 1, cards1: 1, memory0: 100, enum0: 3}

func has(name types.ResourceName) (quantity int64, known bool) {
	quantity, known = node[name]
	return quantity, known
}

func pin(t *testing.T, r *Record, g Grant) Grant {
	t.Helper()
	granted, err := r.Pin(context.Background(), g, has)
	if err != nil {
		t.Fatalf("pin %s: %v", g.Pod(), err)
	}
	return granted
}

type listing func() (map[string]Seen, error)

func (l listing) Pods(context.Context) (map[string]Seen, error) { return l() }

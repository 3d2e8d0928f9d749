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

// fixture is what the runtime and the API server have.
type fixture struct {
	mu     sync.Mutex
	pods   map[string]RuntimeState
	active map[string]bool
	err    error
	asked  int
	boot   string // of the machine
}

func newFixture() *fixture {
	return &fixture{boot: "first boot", pods: map[string]RuntimeState{}, active: map[string]bool{}}
}

func (w *fixture) Pods(context.Context) (map[string]RuntimeState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	seen := map[string]RuntimeState{}
	for uid, pod := range w.pods {
		seen[uid] = pod
	}
	return seen, w.err
}

func (w *fixture) isActive(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active[uid]
}

// run makes the pod live in the runtime, and in the API server.
func (w *fixture) run(g Allocation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[g.PodUID] = RuntimeState{Live: true, Allocation: &g}
	w.active[g.PodUID] = true
}

// stop ends the pod in the runtime, and unless it stays there, in the API server.
func (w *fixture) stop(uid string, staysActive bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[uid] = RuntimeState{Allocation: w.pods[uid].Allocation}
	w.active[uid] = staysActive
}

func open(t *testing.T, w *fixture) (*Checkpoint, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grants")
	return openAt(t, w, path), path
}

func openAt(t *testing.T, w *fixture, path string) *Checkpoint {
	t.Helper()
	r := New(path, w.boot, w, w.isActive)
	t.Cleanup(func() { r.Close() })
	return r
}

// restart returns the checkpoint as the next process has it, after this one was killed.
func restart(t *testing.T, w *fixture, r *Checkpoint) *Checkpoint {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return openAt(t, w, r.file.Path)
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
func wants(uid string, quantities map[types.ResourceName]int64) Allocation {
	return Allocation{PodUID: uid, Namespace: "default", Name: "pod-" + uid, PodInfo: &types.PodInfo{
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

func capacity(name types.ResourceName) (quantity int64, known bool) {
	quantity, known = node[name]
	return quantity, known
}

func grant(t *testing.T, r *Checkpoint, g Allocation) Allocation {
	t.Helper()
	granted, err := r.Grant(context.Background(), g, capacity)
	if err != nil {
		t.Fatalf("grant %s: %v", g.Pod(), err)
	}
	return granted
}

type listing func() (map[string]RuntimeState, error)

func (l listing) Pods(context.Context) (map[string]RuntimeState, error) { return l() }

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is what the runtime and the API server have.
type fixture struct {
	mu       sync.Mutex
	pods     map[string]RuntimeState
	active   map[string]bool
	err      error
	listed   int
	boot     string // of the machine
	key      *nodeKey
	findings []Finding
}

// created is when all containers were created.
var created = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func newFixture() *fixture {
	return &fixture{
		boot: "first boot", pods: map[string]RuntimeState{}, active: map[string]bool{},
		key: &nodeKey{
			node: "node-1", keyContent: keyContent{bytes.Repeat([]byte{7}, keyBytes), created.Add(-time.Hour)},
		},
	}
}

func (w *fixture) Pods(context.Context) (map[string]RuntimeState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed++
	seen := map[string]RuntimeState{}
	for uid, pod := range w.pods {
		seen[uid] = pod
	}
	return seen, w.err
}

// Active implements Pods.
func (w *fixture) Active(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active[uid]
}

// run makes the pod live in the runtime, and in the API server. Its containers carry what they were
// granted.
func (w *fixture) run(g Allocation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := RuntimeState{Live: true, Namespace: g.Namespace, Name: g.Name}
	for _, name := range slices.Sorted(maps.Keys(containersOf(g))) {
		pod.Containers = append(pod.Containers, RuntimeContainer{
			ID: g.PodUID + "-" + name, Name: name, Created: created, Encoded: w.encoded(g, name),
		})
	}
	w.pods[g.PodUID] = pod
	w.active[g.PodUID] = true
}

// encoded is what a container of the pod carries.
func (w *fixture) encoded(g Allocation, container string) string {
	info, init := partOf(g.PodInfo, container)
	part, err := deviceinfo.EncodeContainer(info, init)
	if err != nil {
		panic(err)
	}
	return w.key.sign(subject{g.PodUID, g.Namespace, g.Name, container}, part)
}

// Found implements Observer.
func (w *fixture) Found(f Finding) { w.findings = append(w.findings, f) }

// containersOf returns all containers of a pod.
func containersOf(g Allocation) map[string]types.ContainerInfo {
	all := maps.Clone(g.PodInfo.RunningContainers)
	maps.Copy(all, g.PodInfo.InitContainers)
	return all
}

// recovered is the allocation as it comes back from the runtime.
func recovered(g Allocation) Allocation {
	rename := func(containers map[string]types.ContainerInfo) (renamed map[string]types.ContainerInfo) {
		for name, info := range containers {
			quantities := map[types.ResourceName]int64{}
			for request, from := range info.AllocateFrom {
				quantities[from] = info.DevRequests[request]
			}
			if renamed == nil {
				renamed = map[string]types.ContainerInfo{}
			}
			renamed[name] = holding(quantities, "")
		}
		return renamed
	}
	pod := *g.PodInfo
	pod.InitContainers, pod.RunningContainers = rename(pod.InitContainers), rename(pod.RunningContainers)
	g.PodInfo, g.Partial, g.Signed, g.Since, g.InitOrder = &pod, true, true, created, nil
	return g
}

// stop ends the pod in the runtime, and unless it stays there, in the API server.
func (w *fixture) stop(uid string, staysActive bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := w.pods[uid]
	pod.Live = false
	w.pods[uid] = pod
	w.active[uid] = staysActive
}

func open(t *testing.T, w *fixture) (*Checkpoint, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grants")
	return openAt(t, w, path), path
}

func openAt(t *testing.T, w *fixture, path string) *Checkpoint {
	t.Helper()
	r := New(w.options(t, path))
	t.Cleanup(func() { r.Close() })
	return r
}

// options are those of a checkpoint at path, in whose directory, if there is one, the fixture's key
// is then.
func (w *fixture) options(t testing.TB, path string) Options {
	t.Helper()
	key := newNodeKey(filepath.Dir(path), "").file
	if _, err := os.Stat(key.Path); errors.Is(err, fs.ErrNotExist) {
		if err := key.Save(w.key.keyContent); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return Options{
		Path: path, Boot: w.boot, Node: "node-1", Runtime: w, Pods: w, Inventory: capacities(capacity),
		Observer: w,
	}
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
	return holding(quantities, "ask/")
}

// holding returns a container whose requests are called as what serves them, with a prefix.
func holding(quantities map[types.ResourceName]int64, prefix types.ResourceName) types.ContainerInfo {
	info := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
	for name, quantity := range quantities {
		info.DevRequests[prefix+name] = quantity
		info.AllocateFrom[prefix+name] = name
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

// capacities are an inventory.
type capacities Capacity

// Grantable implements Inventory.
func (c capacities) Grantable(name types.ResourceName) (quantity int64, known bool) { return c(name) }

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

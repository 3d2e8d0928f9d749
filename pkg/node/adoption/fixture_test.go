// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nics   types.ResourceName = "vendor.example/nic"
	accels types.ResourceName = "vendor.example/accel"
	cards  types.ResourceName = "resource/group/gpu/g0/cards" // of the scheduler
)

// kubelets is a device of a resource that moved from the kubelet.
func kubelets(resource types.ResourceName, id string, numa ...int) types.ResourceName {
	name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: resource, ID: id, NUMA: numa})
	if err != nil {
		panic(err)
	}
	return name
}

// listed is a pod of the API server, to whose only container the kubelet allocated these devices.
func listed(uid string, devices ...types.ResourceName) candidate {
	info := types.NewPodInfo()
	info.Name, info.NodeName = "pod-"+uid, "node-1"
	info.RunningContainers["main"] = containerOf(devices)
	return candidate{listed: true, Allocation: grants.Allocation{
		PodUID: uid, Namespace: "default", Name: "pod-" + uid, Adopted: true, PodInfo: info,
	}}
}

// fixture is the kubelet's checkpoint, the API server, the runtime and the node's inventory.
type fixture struct {
	adopter    *Adopter
	kubelets   map[entry]bool
	candidates []candidate
	err        error // of reading the kubelet's checkpoint

	mu     sync.Mutex
	active map[string]bool
	pods   map[string]grants.RuntimeState
}

func newFixture() *fixture {
	f := &fixture{active: map[string]bool{}, pods: map[string]grants.RuntimeState{}}
	f.adopter = &Adopter{pods: f}
	return f
}

// Read implements grants.Origin.
func (f *fixture) Read() (grants.Foreign, error) {
	return merger{f.adopter, f.kubelets, slices.Clone(f.candidates)}, f.err
}

// Get implements Pods.
func (f *fixture) Get(string) (pods.Pod, bool) { return pods.Pod{}, false }

// Active implements Pods.
func (f *fixture) Active(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active[uid]
}

// Check implements Pods.
func (f *fixture) Check() error { return nil }

// Pods implements grants.Runtime.
func (f *fixture) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.pods), nil
}

// checkpoint returns a checkpoint of granted devices at the path, whose origin is the fixture.
func (f *fixture) checkpoint(t *testing.T, path string) *grants.Checkpoint {
	t.Helper()
	c := grants.New(grants.Options{Path: path, Node: "node-1", Runtime: f, Pods: f, Origin: f, Observer: findings{t}})
	t.Cleanup(func() { c.Close() })
	return c
}

// findings are none in these tests.
type findings struct{ t *testing.T }

// Found implements grants.Observer.
func (f findings) Found(found grants.Finding) { f.t.Errorf("finding %+v", found) }

// reconcile has the checkpoint read the fixture.
func reconcile(t *testing.T, c *grants.Checkpoint) {
	t.Helper()
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wants returns a grant of one of each of these to the pod's only container.
func wants(uid string, devices ...types.ResourceName) grants.Allocation {
	return grants.Allocation{PodUID: uid, Namespace: "default", Name: "pod-" + uid, PodInfo: &types.PodInfo{
		Name: "pod-" + uid, NodeName: "node-1",
		RunningContainers: map[string]types.ContainerInfo{"main": containerOf(devices)},
	}}
}

// one is a capacity of one of everything.
func one(types.ResourceName) (quantity int64, known bool) { return 1, true }

// held returns which pods hold which devices, as "uid device".
func held(c *grants.Checkpoint) []string {
	var all []string
	for _, a := range c.List() {
		for _, name := range slices.Sorted(maps.Keys(a.Holds())) {
			all = append(all, a.PodUID+" "+string(name))
		}
	}
	return all
}

var errUnreadable = errors.New("unreadable")

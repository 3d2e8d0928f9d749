// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const card types.ResourceName = "resource/group/gpu/0/cards"

func allocationOf(name string) *types.PodInfo {
	return &types.PodInfo{Name: name, NodeName: "node-1", RunningContainers: map[string]types.ContainerInfo{
		"main": {DevRequests: types.ResourceList{"a": 1}, AllocateFrom: types.ResourceLocation{"a": card}},
	}}
}

// key returns the same key for the same number.
func key(number byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), number))
}

// keys are the keys of some numbers, which a test can change.
type keys struct {
	mu       sync.Mutex
	verifier *seal.Verifier
	changed  chan struct{}
}

func newKeys(numbers ...byte) *keys {
	k := &keys{changed: make(chan struct{})}
	k.set(numbers...)
	return k
}

func (k *keys) set(numbers ...byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.verifier = nil
	if len(numbers) > 0 {
		var public []ed25519.PublicKey
		for _, number := range numbers {
			public = append(public, key(number).Public().(ed25519.PublicKey))
		}
		k.verifier = seal.NewVerifier(public...)
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *keys) Verifier() (*seal.Verifier, <-chan struct{}, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.verifier == nil {
		return nil, k.changed, errors.New("no key is known")
	}
	return k.verifier, k.changed, nil
}

// background runs f until the test ends, or the returned function is called.
func background(t *testing.T, f func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// state is the node's pods and grants, which a test can change.
type state struct {
	mu       sync.Mutex
	pods     map[string]pods.Pod
	granted  []grants.Allocation
	unlisted bool // the API server has not listed the pods
	unread   bool // the list of grants is incomplete
	changed  chan struct{}
	followed int // calls of Follow
}

func (s *state) Get(uid string) (pods.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, known := s.pods[uid]
	return pod, known
}

func (s *state) Active(uid string) bool {
	pod, known := s.Get(uid)
	return known && !pod.Ended
}

func (s *state) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unlisted {
		return errors.New("not listed")
	}
	return nil
}

func (s *state) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *state) Follow() ([]grants.Allocation, bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed++
	return slices.Clone(s.granted), !s.unread, s.changed
}

// settle waits until the controller has read all changes so far: its second call of Follow comes
// after them.
func (s *state) settle(t *testing.T) {
	t.Helper()
	for range 2 {
		var count int
		s.change(func() { count = s.followed })
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			s.mu.Lock()
			now := s.followed
			s.mu.Unlock()
			if now > count {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the controller does not read the grants")
			}
		}
	}
}

func (s *state) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// add adds a pod with devices, with the seal of a key unless the number is 0.
func (s *state) add(t *testing.T, name string, number byte) {
	t.Helper()
	info := allocationOf(name)
	pod := pods.Pod{Namespace: "team", Name: name}
	if number > 0 {
		signer, err := seal.NewSigner(key(number))
		if err != nil {
			t.Fatal(err)
		}
		if pod.Seal, err = signer.Seal(seal.Decision{UID: apitypes.UID("uid-" + name), Namespace: "team", Name: name,
			Node: "node-1", Allocation: seal.DigestOf(info)}); err != nil {
			t.Fatal(err)
		}
		if pod.Allocation, err = deviceinfo.EncodePod(info); err != nil {
			t.Fatal(err)
		}
	}
	s.change(func() {
		s.pods["uid-"+name] = pod
		s.granted = append(s.granted, grants.Allocation{PodUID: "uid-" + name, PodInfo: info})
	})
}

// awaitHolders waits until exactly the pods of these names are holders.
func awaitHolders(t *testing.T, h *Controller, want ...string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		list, known, changed := h.Holders()
		var got []string
		for _, holder := range list {
			got = append(got, holder.Name)
			if holder.UID != apitypes.UID("uid-"+holder.Name) || holder.Namespace != "team" ||
				holder.Containers["main"][card] != 1 {
				t.Errorf("holder %v", holder)
			}
		}
		if known && slices.Equal(got, want) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("holders %q (known: %v), want %q", got, known, want)
		}
	}
}

func TestPodsWithoutAValidSealAreHolders(t *testing.T) {
	keys := newKeys(1, 2)
	s := &state{pods: map[string]pods.Pod{}, changed: make(chan struct{}), unlisted: true, unread: true}
	h := New("node-1", keys, s, s)
	background(t, h.Run)

	s.add(t, "a-old", 0)
	s.add(t, "b-first", 1)
	s.add(t, "c-second", 2)
	s.add(t, "d-other", 3)
	s.change(func() { s.unlisted = false })
	s.settle(t)
	if _, known, _ := h.Holders(); known {
		t.Error("holders are known before all grants are")
	}
	s.change(func() { s.unread = false })
	awaitHolders(t, h, "a-old", "d-other")

	// The seal stays, and a client changes the allocation.
	s.change(func() {
		pod := s.pods["uid-b-first"]
		pod.Allocation = `{"podname":"b-first"}`
		s.pods["uid-b-first"] = pod
	})
	awaitHolders(t, h, "a-old", "b-first", "d-other")

	// A key is removed, another one added.
	keys.set(1, 3)
	awaitHolders(t, h, "a-old", "b-first", "c-second")

	// One pod ends, another is gone.
	s.change(func() {
		s.pods["uid-a-old"] = pods.Pod{Namespace: "team", Name: "a-old", Ended: true}
		delete(s.pods, "uid-b-first")
	})
	awaitHolders(t, h, "c-second")
	s.change(func() { s.granted = nil })
	awaitHolders(t, h)
}

func TestPodWithARestoredAllocationHoldsItsCurrentDevices(t *testing.T) {
	s := &state{pods: map[string]pods.Pod{}, changed: make(chan struct{})}
	h := New("node-1", newKeys(1), s, s)
	background(t, h.Run)
	s.add(t, "replaced", 1)
	awaitHolders(t, h)
	s.change(func() { s.granted[0].Generation = 2 }) // and the pod has the first one
	awaitHolders(t, h, "replaced")
	if list, _, _ := h.Holders(); list[0].Generation != 2 {
		t.Errorf("it is reported as %+v", list[0])
	}
	s.change(func() { s.granted[0].Generation = 0 })
	awaitHolders(t, h)
}

func TestAdoptedPodsAreHoldersWithAndWithoutSeals(t *testing.T) {
	for name, test := range map[string]struct {
		keys     Keys
		unsealed []string
	}{
		"with keys":     {newKeys(1), []string{"c-unsealed"}},
		"without seals": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{pods: map[string]pods.Pod{}, changed: make(chan struct{})}
			h := New("node-1", test.keys, s, s)
			background(t, h.Run)
			s.add(t, "a-adopted", 0)
			s.add(t, "b-sealed", 1)
			s.add(t, "c-unsealed", 0)
			s.change(func() { s.granted[0].Adopted = true })
			awaitHolders(t, h, append([]string{"a-adopted"}, test.unsealed...)...)
			s.change(func() { delete(s.pods, "uid-a-adopted") })
			awaitHolders(t, h, test.unsealed...)
		})
	}
}

func TestHoldersAreUnknownWithoutAnyKey(t *testing.T) {
	keys := newKeys()
	s := &state{pods: map[string]pods.Pod{}, changed: make(chan struct{})}
	h := New("node-1", keys, s, s)
	stop := background(t, h.Run)
	s.add(t, "a", 0)
	s.settle(t)
	stop()
	if list, known, _ := h.Holders(); known || list != nil {
		t.Errorf("holders %v, known: %v", list, known)
	}
}

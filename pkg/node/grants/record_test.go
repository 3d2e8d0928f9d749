// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
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
}

func newWorld() *world { return &world{pods: map[string]Seen{}, active: map[string]bool{}} }

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
	r := New(path, w, w.isActive)
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

func TestTheFirstDecisionStaysWhateverComesLater(t *testing.T) {
	w := newWorld()
	r, _ := open(t, w)
	first := wants("a", map[types.ResourceName]int64{cards0: 1})
	pin(t, r, first)
	w.run(first)
	for range 2 {
		got := pin(t, r, wants("a", map[types.ResourceName]int64{cards1: 1}))
		if diff := cmp.Diff(first.Decision, got.Decision); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// And after a restart.
		r = restart(t, w, r)
	}
}

func TestADeviceHasOneLiveHolder(t *testing.T) { synctest.Test(t, oneLiveHolder) }

func oneLiveHolder(t *testing.T) {
	w := newWorld()
	r, _ := open(t, w)
	a, b := wants("a", map[types.ResourceName]int64{cards0: 1}), wants("b", map[types.ResourceName]int64{cards0: 1})
	pin(t, r, a)
	w.run(a)
	refused := func(when string) {
		t.Helper()
		_, err := r.Pin(context.Background(), b, has)
		var conflict *Conflict
		if !errors.As(err, &conflict) {
			t.Fatalf("%s: got %v, want a Conflict", when, err)
		}
		if !strings.Contains(err.Error(), "default/pod-a") || !strings.Contains(err.Error(), string(cards0)) {
			t.Errorf("%s: %q names neither holder nor resource", when, err)
		}
	}
	refused("while the first pod runs")
	w.mu.Lock()
	w.active["a"] = false
	w.mu.Unlock()
	refused("when the first pod was force-deleted and its container still runs")
	w.stop("a", true)
	refused("when the first pod's containers stopped and the API server still has it")
	w.stop("a", false)
	pin(t, r, b)
	if got := r.List(); len(got) != 1 || got[0].PodUID != "b" {
		t.Errorf("on record: %v, want b alone", got)
	}
}

// ending is a world whose pods end after it was asked some times.
type ending struct {
	*world
	uid   string
	after int
}

func (e *ending) Pods(ctx context.Context) (map[string]Seen, error) {
	if e.after--; e.after == 0 {
		e.stop(e.uid, false)
	}
	return e.world.Pods(ctx)
}

func TestADeviceOfAPodThatIsJustLeavingIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		after   int
		deleted bool
		granted bool
		asked   int // of the runtime, at the most
	}{
		"its container ends in a moment":   {after: 5, deleted: true, granted: true, asked: 6},
		"its container does not end":       {after: -1, deleted: true, granted: false, asked: 60},
		"its pod is not deleted, it stays": {after: -1, deleted: false, granted: false, asked: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				r := New(filepath.Join(t.TempDir(), "grants"), &ending{w, "old", test.after}, w.isActive)
				defer r.Close()
				held := wants("old", map[types.ResourceName]int64{cards0: 1})
				w.run(held)
				if test.deleted {
					w.mu.Lock()
					w.active["old"] = false
					w.mu.Unlock()
				}
				_, err := r.Pin(t.Context(), wants("new", map[types.ResourceName]int64{cards0: 1}), has)
				if granted := err == nil; granted != test.granted {
					t.Errorf("error %v, granted should be %v", err, test.granted)
				}
				if w.asked > test.asked {
					t.Errorf("the runtime was asked %d times, want at most %d", w.asked, test.asked)
				}
			})
		})
	}
}

func TestADeviceIsHeldWhereverItsGroupsAreNumberedAnew(t *testing.T) {
	const (
		before, after types.ResourceName = "resource/group/numa/0/gpu/GPU-7/memory", "resource/group/numa/1/gpu/GPU-7/memory"
		another       types.ResourceName = "resource/group/numa/0/gpu/GPU-8/memory"
	)
	on := func(names ...types.ResourceName) Has {
		return func(name types.ResourceName) (int64, bool) { return 100, slices.Contains(names, name) }
	}
	for name, test := range map[string]struct {
		wanted  types.ResourceName
		has     Has
		refused bool
	}{
		"the device under its new path":                      {after, on(after, another), true},
		"another device under the path's old groups":         {another, on(after, another), false},
		"a device of the same ID in another group beside it": {after, on(before, after), false},
	} {
		w := newWorld()
		r, _ := open(t, w)
		first := wants("a", map[types.ResourceName]int64{before: 60})
		if _, err := r.Pin(context.Background(), first, on(before)); err != nil {
			t.Fatal(err)
		}
		w.run(first)
		_, err := r.Pin(context.Background(), wants("b", map[types.ResourceName]int64{test.wanted: 60}), test.has)
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "default/pod-a") {
			t.Errorf("%s: %v, want refused=%v", name, err, test.refused)
		}
	}
}

func TestSharedQuantitiesAddUpToWhatThereIs(t *testing.T) {
	w := newWorld()
	r, _ := open(t, w)
	for i, test := range []struct {
		quantity int64
		fits     bool
	}{{50, true}, {51, false}, {30, true}, {20, true}, {1, false}, {math.MaxInt64, false}} {
		g := wants(fmt.Sprint(i), map[types.ResourceName]int64{memory0: test.quantity})
		_, err := r.Pin(context.Background(), g, has)
		if (err == nil) != test.fits {
			t.Errorf("%d more: %v, want fits=%v", test.quantity, err, test.fits)
		}
		if err == nil {
			w.run(g)
		}
	}
}

func TestWhatAPodHolds(t *testing.T) {
	for name, test := range map[string]struct {
		running, init []map[types.ResourceName]int64
		want          types.ResourceList
	}{
		"its containers together":                  {running: []map[types.ResourceName]int64{{memory0: 10}, {memory0: 20, cards0: 1}}, want: types.ResourceList{memory0: 30, cards0: 1}},
		"its largest init container if it is more": {running: []map[types.ResourceName]int64{{memory0: 10}}, init: []map[types.ResourceName]int64{{memory0: 40}, {memory0: 35, cards1: 1}}, want: types.ResourceList{memory0: 40, cards1: 1}},
		"its containers if they are more":          {running: []map[types.ResourceName]int64{{memory0: 30}, {memory0: 30}}, init: []map[types.ResourceName]int64{{memory0: 40}}, want: types.ResourceList{memory0: 60}},
		"no sum overflows":                         {running: []map[types.ResourceName]int64{{memory0: math.MaxInt64}, {memory0: math.MaxInt64}}, want: types.ResourceList{memory0: math.MaxInt64}},
		"a mask is not a quantity":                 {running: []map[types.ResourceName]int64{{enum0: 3}}, want: types.ResourceList{}},
	} {
		decision := types.NewPodInfo()
		for i, quantities := range test.running {
			decision.RunningContainers[fmt.Sprint("r", i)] = container(quantities)
		}
		for i, quantities := range test.init {
			decision.InitContainers[fmt.Sprint("i", i)] = container(quantities)
		}
		if diff := cmp.Diff(test.want, (&Grant{InitOrder: []string{"i0", "i1"}, Decision: decision}).Holds()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnInitContainerRunsAlongWithTheSidecarsBeforeIt(t *testing.T) {
	decision := types.NewPodInfo()
	decision.RunningContainers["side"] = container(map[types.ResourceName]int64{memory0: 10})
	decision.RunningContainers["main"] = container(map[types.ResourceName]int64{memory0: 20})
	decision.InitContainers["init"] = container(map[types.ResourceName]int64{memory0: 40})
	for name, test := range map[string]struct {
		order []string
		want  int64
	}{
		"the sidecar starts before":                      {[]string{"side", "init"}, 50},
		"the sidecar starts after":                       {[]string{"init", "side"}, 40},
		"nobody knows, so everything is held at once":    {nil, 70},
		"an order that lacks an init container is none":  {[]string{"side"}, 70},
		"containers without devices do not matter to it": {[]string{"a", "side", "b", "init", "c"}, 50},
	} {
		want := types.ResourceList{memory0: test.want}
		if diff := cmp.Diff(want, (&Grant{InitOrder: test.order, Decision: decision}).Holds()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTwoRequestsThatOverflowTogetherAreNotSmall(t *testing.T) {
	r, _ := open(t, newWorld())
	g := wants("a", nil)
	info := types.NewContainerInfo()
	for i := range 4 {
		request := types.ResourceName(fmt.Sprint("ask", i))
		info.DevRequests[request], info.AllocateFrom[request] = math.MaxInt64/2+1, memory0
	}
	g.Decision.RunningContainers["main"] = *info
	if _, err := r.Pin(context.Background(), g, has); err == nil {
		t.Error("granted 2^64 of 100")
	}
}

func TestNothingIsGrantedBeforeTheRuntimeWasAsked(t *testing.T) {
	w := newWorld()
	w.err = errors.New("runtime away")
	r, _ := open(t, w)
	g := wants("a", map[types.ResourceName]int64{cards0: 1})
	if _, err := r.Pin(context.Background(), g, has); !errors.Is(err, w.err) {
		t.Fatalf("got %v, want %v", err, w.err)
	}
	if err := r.Check(); err == nil {
		t.Error("the record says it is complete")
	}
	w.err = nil
	pin(t, r, g)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

func TestALostRecordComesBackFromTheContainers(t *testing.T) {
	w := newWorld()
	r, path := open(t, w)
	running, over := wants("a", map[types.ResourceName]int64{cards0: 1}), wants("b", map[types.ResourceName]int64{cards1: 1})
	pin(t, r, running)
	pin(t, r, over)
	w.run(running)
	w.run(over)
	w.stop("b", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r = restart(t, w, r)
	if _, err := r.Pin(context.Background(), wants("c", map[types.ResourceName]int64{cards0: 1}), has); err == nil {
		t.Error("the device of a pod that runs was granted again")
	}
	pin(t, r, wants("d", map[types.ResourceName]int64{cards1: 1}))
}

func TestADamagedRecordIsSetAsideAndMadeAnew(t *testing.T) {
	w := newWorld()
	r, path := open(t, w)
	g := wants("a", map[types.ResourceName]int64{cards0: 1})
	pin(t, r, g)
	w.run(g)
	if err := os.WriteFile(path, []byte("kubedevice-grants v1 sha256:00\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = restart(t, w, r)
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !r.WasDamaged() {
		t.Error("the damage went unnoticed")
	}
	if aside, err := filepath.Glob(path + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	onDisk, err := Read(path)
	if err != nil || len(onDisk) != 1 || onDisk[0].PodUID != "a" {
		t.Errorf("made anew: %v, %v", onDisk, err)
	}
}

func TestWhatCannotBeWrittenIsNotGranted(t *testing.T) {
	w := newWorld()
	path := filepath.Join(t.TempDir(), "missing", "grants")
	r := openAt(t, w, path)
	if _, err := r.Pin(context.Background(), wants("a", map[types.ResourceName]int64{cards0: 1}), has); err == nil {
		t.Fatal("granted without a record")
	}
	if r.Has("a") || len(r.List()) != 0 {
		t.Error("the grant that failed is on record")
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	pin(t, r, wants("b", map[types.ResourceName]int64{cards0: 1}))
}

func TestWhoHoldsTheRecordKeepsOthersFromItAndIsRefusedWhileTheyHaveIt(t *testing.T) {
	w := newWorld()
	r, path := open(t, w)
	pin(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	if _, err := Hold(path); !errors.Is(err, ErrInUse) {
		t.Errorf("while a process has the record: %v, want ErrInUse", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	held, err := Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*lockRetry)
	defer cancel()
	if err := openAt(t, w, path).Reconcile(ctx); err == nil || !strings.Contains(err.Error(), "another kubecri") {
		t.Errorf("while the record is held: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(filepath.Join(t.TempDir(), "missing", "grants")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

func TestTwoProcessesNeverHaveTheRecordAtOnce(t *testing.T) {
	w := newWorld()
	old, path := open(t, w)
	pin(t, old, wants("a", map[types.ResourceName]int64{cards0: 1}))
	next := openAt(t, w, path)
	ctx, cancel := context.WithTimeout(context.Background(), 2*lockRetry)
	defer cancel()
	b := wants("b", map[types.ResourceName]int64{cards1: 1})
	if _, err := next.Pin(ctx, b, has); err == nil || !strings.Contains(err.Error(), "another kubecri") {
		t.Errorf("while the old process lives: %v", err)
	}
	granted := make(chan error, 1)
	go func() {
		_, err := next.Pin(context.Background(), b, has)
		granted <- err
	}()
	pin(t, old, wants("c", nil))
	w.run(wants("a", map[types.ResourceName]int64{cards0: 1}))
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("when the old process has ended: %v", err)
	}
	if !next.Has("a") || !next.Has("b") {
		t.Errorf("on record: %v", next.List())
	}
}

func TestAGrantMadeWhileTheRuntimeListsIsKept(t *testing.T) {
	w := newWorld()
	r, _ := open(t, w)
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.runtime = listing(func() (map[string]Seen, error) {
		pin(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
		return nil, nil
	})
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !r.Has("a") {
		t.Error("the grant is gone")
	}
}

func TestPodsWithoutDevicesDoNotWaitForTheDisk(t *testing.T) {
	r, _ := open(t, newWorld())
	pin(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	r.changing.Lock() // as while the file is written
	defer r.changing.Unlock()
	if !r.Has("a") || len(r.List()) != 1 || r.Check() != nil {
		t.Errorf("on record: %v, %v", r.List(), r.Check())
	}
	if _, pinned, err := r.Pinned(context.Background(), "a"); !pinned || err != nil {
		t.Errorf("pinned: %v, %v", pinned, err)
	}
}

type listing func() (map[string]Seen, error)

func (l listing) Pods(context.Context) (map[string]Seen, error) { return l() }

// Pods come and go at random, kubecri restarts, the file is lost or damaged: at no time do the pods that live hold more
// than there is, and who is granted something once keeps it.
func TestPropertyLivePodsNeverHoldMoreThanThereIs(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	names := []types.ResourceName{cards0, cards1, memory0}
	for range 20 {
		w := newWorld()
		r, path := open(t, w)
		living := map[string]Grant{}
		granted, refused := 0, 0
		for step := range 60 {
			switch random.IntN(6) {
			case 0, 1, 2:
				quantities := map[types.ResourceName]int64{}
				for _, name := range names {
					if random.IntN(2) == 0 {
						quantities[name] = 1 + random.Int64N(node[name])
					}
				}
				if len(quantities) == 0 {
					continue
				}
				g, err := r.Pin(context.Background(), wants(fmt.Sprint(step), quantities), has)
				if err != nil {
					refused++
					continue
				}
				granted++
				living[g.PodUID] = g
				w.run(g)
			case 3:
				for uid := range living {
					w.stop(uid, false)
					delete(living, uid)
					break
				}
			case 4:
				if random.IntN(2) == 0 {
					os.WriteFile(path, []byte("damaged"), 0o600)
				}
				r = restart(t, w, r)
			case 5:
				for uid, g := range living {
					again, err := r.Pin(context.Background(), wants(uid, map[types.ResourceName]int64{cards0: 1}), has)
					if err != nil {
						t.Fatalf("pod %s does not get its devices again: %v", uid, err)
					}
					if diff := cmp.Diff(g.Decision, again.Decision); diff != "" {
						t.Fatalf("pod %s gets other devices (-before +now):\n%s", uid, diff)
					}
				}
			}
			for _, name := range names {
				var held int64
				for _, g := range living {
					held += g.Holds()[name]
				}
				if held > node[name] {
					t.Fatalf("%s: %d of %d are held", name, held, node[name])
				}
			}
		}
		if granted == 0 || refused == 0 {
			t.Errorf("%d granted, %d refused: the test shows nothing", granted, refused)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestADeviceHasOneLiveHolder(t *testing.T) { synctest.Test(t, oneLiveHolder) }

func oneLiveHolder(t *testing.T) {
	w := newFixture()
	r, _ := open(t, w)
	a, b := wants("a", map[types.ResourceName]int64{cards0: 1}), wants("b", map[types.ResourceName]int64{cards0: 1})
	grant(t, r, a)
	w.run(a)
	refused := func(when string) {
		t.Helper()
		_, err := r.Grant(context.Background(), b, capacity)
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
	grant(t, r, b)
	if got := r.List(); len(got) != 1 || got[0].PodUID != "b" {
		t.Errorf("checkpoint: %v, want b alone", got)
	}
}

// ending is a fixture whose pods end after it was asked some times.
type ending struct {
	*fixture
	uid   string
	after int
}

func (e *ending) Pods(ctx context.Context) (map[string]RuntimeState, error) {
	if e.after--; e.after == 0 {
		e.stop(e.uid, false)
	}
	return e.fixture.Pods(ctx)
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
				w := newFixture()
				options := w.options(t, filepath.Join(t.TempDir(), "grants"))
				options.Runtime = &ending{w, "old", test.after}
				r := New(options)
				defer r.Close()
				held := wants("old", map[types.ResourceName]int64{cards0: 1})
				w.run(held)
				if test.deleted {
					w.mu.Lock()
					w.active["old"] = false
					w.mu.Unlock()
				}
				_, err := r.Grant(t.Context(), wants("new", map[types.ResourceName]int64{cards0: 1}), capacity)
				if granted := err == nil; granted != test.granted {
					t.Errorf("error %v, granted should be %v", err, test.granted)
				}
				if w.listed > test.asked {
					t.Errorf("the runtime was asked %d times, want at most %d", w.listed, test.asked)
				}
			})
		})
	}
}

func TestADeviceIsHeldWhenItsGroupsGetOtherNumbers(t *testing.T) {
	const (
		before  types.ResourceName = "resource/group/numa/0/gpu/GPU-7/memory"
		after   types.ResourceName = "resource/group/numa/1/gpu/GPU-7/memory"
		another types.ResourceName = "resource/group/numa/0/gpu/GPU-8/memory"
	)
	on := func(names ...types.ResourceName) Capacity {
		return func(name types.ResourceName) (int64, bool) { return 100, slices.Contains(names, name) }
	}
	for name, test := range map[string]struct {
		wanted  types.ResourceName
		has     Capacity
		refused bool
	}{
		"the device under its new path":              {after, on(after, another), true},
		"another device under the path's old groups": {another, on(after, another), false},
		"a device of the same ID in another group":   {after, on(before, after), false},
	} {
		w := newFixture()
		r, _ := open(t, w)
		first := wants("a", map[types.ResourceName]int64{before: 60})
		if _, err := r.Grant(context.Background(), first, on(before)); err != nil {
			t.Fatal(err)
		}
		w.run(first)
		_, err := r.Grant(context.Background(), wants("b", map[types.ResourceName]int64{test.wanted: 60}), test.has)
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "default/pod-a") {
			t.Errorf("%s: %v, want refused=%v", name, err, test.refused)
		}
	}
}

func TestSharedQuantitiesAddUpToWhatThereIs(t *testing.T) {
	w := newFixture()
	r, _ := open(t, w)
	for i, test := range []struct {
		quantity int64
		fits     bool
	}{{50, true}, {51, false}, {30, true}, {20, true}, {1, false}, {math.MaxInt64, false}} {
		g := wants(fmt.Sprint(i), map[types.ResourceName]int64{memory0: test.quantity})
		_, err := r.Grant(context.Background(), g, capacity)
		if (err == nil) != test.fits {
			t.Errorf("%d more: %v, want fits=%v", test.quantity, err, test.fits)
		}
		if err == nil {
			w.run(g)
		}
	}
}

// A GPU whose card a pod has is shared with no other pod, and one that pods share is given to none
// alone, whichever resources they were given.
func TestAPodThatHasAllThereIsOfAResourceHasTheDeviceAlone(t *testing.T) {
	const (
		nvlink0 types.ResourceName = "resource/group/gpu/g0/nvlink"
		slots   types.ResourceName = "resource/group/slots"
		ports   types.ResourceName = "resource/group/ports"
		moved0  types.ResourceName = "resource/group/numa/1/gpu/g0/memory"
		mask0   types.ResourceName = "resource/group/gpu/g0/kind"
	)
	has := map[types.ResourceName]int64{
		cards0: 1, memory0: 100, cards1: 1, nvlink0: 6, slots: 1, ports: 4, mask0: math.MaxInt64,
	}
	type quantities = map[types.ResourceName]int64
	for name, test := range map[string]struct {
		held, wanted quantities
		moved        bool // the device has another path now
		refused      bool
	}{
		"memory of a GPU whose card is held": {
			held: quantities{cards0: 1}, wanted: quantities{memory0: 1}, refused: true,
		},
		"memory of a GPU whose card is held with some memory": {
			held: quantities{cards0: 1, memory0: 10}, wanted: quantities{memory0: 1}, refused: true,
		},
		"the card of a GPU whose memory is shared": {
			held: quantities{memory0: 1}, wanted: quantities{cards0: 1}, refused: true,
		},
		"links of a GPU whose memory is all held": {
			held: quantities{memory0: 100}, wanted: quantities{nvlink0: 1}, refused: true,
		},
		"memory of a GPU whose card is held under its old path": {
			held: quantities{cards0: 1}, wanted: quantities{moved0: 1}, moved: true, refused: true,
		},
		"memory and links of one GPU, shared": {held: quantities{memory0: 50}, wanted: quantities{nvlink0: 1}},
		"memory of a GPU that is shared":      {held: quantities{memory0: 50}, wanted: quantities{memory0: 50}},
		"memory of another GPU":               {held: quantities{cards1: 1}, wanted: quantities{memory0: 1}},
		"a mask of a GPU whose card is held":  {held: quantities{cards0: 1}, wanted: quantities{mask0: 1}},
		"two resources of the node itself":    {held: quantities{slots: 1}, wanted: quantities{ports: 1}},
	} {
		w := newFixture()
		r, _ := open(t, w)
		now := maps.Clone(has)
		holder := wants("holder", test.held)
		if _, err := r.Grant(t.Context(), holder, capacityOf(now)); err != nil {
			t.Fatal(err)
		}
		w.run(holder)
		if test.moved {
			delete(now, cards0)
			delete(now, memory0)
			now["resource/group/numa/1/gpu/g0/cards"], now[moved0] = 1, 100
		}
		_, err := r.Grant(t.Context(), wants("late", test.wanted), capacityOf(now))
		var conflict *Conflict
		if errors.As(err, &conflict) != test.refused {
			t.Errorf("%s: %v, want refused=%v", name, err, test.refused)
		}
		if err != nil && (!strings.Contains(err.Error(), "default/pod-holder") ||
			!strings.Contains(err.Error(), "works when they are gone")) {
			t.Errorf("%s: the error names neither holder nor next step: %v", name, err)
		}
	}
}

func capacityOf(has map[types.ResourceName]int64) Capacity {
	return func(name types.ResourceName) (int64, bool) { quantity, known := has[name]; return quantity, known }
}

// BenchmarkRefusedGrant refuses a device that one of 110 pods holds, as each try of a refused pod
// does, with the lists of a runtime that answers at once.
func BenchmarkRefusedGrant(b *testing.B) {
	const pods = 110
	w := newFixture()
	runtime := lister{}
	sized := func(types.ResourceName) (int64, bool) { return 1, true }
	device := func(i int) map[types.ResourceName]int64 {
		return map[types.ResourceName]int64{types.ResourceName(fmt.Sprintf("resource/group/gpu/g%d/cards", i)): 1}
	}
	options := w.options(b, filepath.Join(b.TempDir(), "grants"))
	options.Runtime, options.Inventory = cri{&runtime}, capacities(sized)
	r := New(options)
	b.Cleanup(func() { r.Close() })
	for i := range pods {
		holder := wants(fmt.Sprint(i), device(i))
		w.run(holder)
		if _, err := r.Grant(b.Context(), holder, sized); err != nil {
			b.Fatal(err)
		}
		runtime.sandboxes = append(runtime.sandboxes, &runtimeapi.PodSandbox{
			Id: holder.PodUID, Metadata: &runtimeapi.PodSandboxMetadata{
				Uid: holder.PodUID, Namespace: holder.Namespace, Name: holder.Name,
			},
		})
		runtime.containers = append(runtime.containers, &runtimeapi.Container{
			Id: holder.PodUID, PodSandboxId: holder.PodUID, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
			Annotations: map[string]string{Annotation: w.encoded(holder, "main")},
		})
	}
	refused := wants("refused", device(pods/2))
	b.ReportAllocs()
	for b.Loop() {
		var conflict *Conflict
		if _, err := r.Grant(b.Context(), refused, sized); !errors.As(err, &conflict) {
			b.Fatal(err)
		}
	}
}

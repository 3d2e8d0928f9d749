// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// next is a generation in which the only container has one card.
func next(uid string, generation int64, card types.ResourceName) Replacement {
	return Replacement{PodUID: uid, Generation: generation, Containers: map[string]types.ContainerInfo{
		"main": container(map[types.ResourceName]int64{card: 1}),
	}}
}

func requestReplacement(t *testing.T, r *Checkpoint, uid string, containers ...string) time.Time {
	t.Helper()
	granted, _, err := r.Granted(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	since, err := r.RequestReplacement(uid, granted.Generation, containers)
	if err != nil {
		t.Fatal(err)
	}
	return since
}

// isFree checks whether a pod would be granted the card.
func isFree(t *testing.T, r *Checkpoint, card types.ResourceName, want bool) {
	t.Helper()
	probe := wants("probe", map[types.ResourceName]int64{card: 1})
	_, err := r.grant(&probe, capacity)
	if free := err == nil; free != want {
		t.Errorf("%s: free is %v, want %v (%v)", card, free, want, err)
	}
	if err == nil {
		w := r.current()
		left := map[string]*Allocation{}
		for uid, a := range w {
			if uid != "probe" {
				left[uid] = a
			}
		}
		if err := r.replace(left); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAReplacedDeviceIsHeldUntilItsContainerHasEnded(t *testing.T) {
	w := newFixture()
	r, _ := open(t, w)
	a := wants("a", map[types.ResourceName]int64{cards0: 1})
	grant(t, r, a)
	w.run(a)
	requestReplacement(t, r, "a", "main")
	isFree(t, r, cards0, false)
	isFree(t, r, cards1, true)
	now, err := r.Replace(next("a", 1, cards1), capacity)
	if err != nil {
		t.Fatal(err)
	}
	if now.Generation != 1 || len(now.Pending) != 0 || len(now.Leaving["main"].AllocateFrom) != 1 {
		t.Errorf("the allocation is %+v", now)
	}
	for range 2 { // and so it is after a restart
		isFree(t, r, cards0, false)
		isFree(t, r, cards1, false)
		if r = restart(t, w, r); r.Reconcile(t.Context()) != nil {
			t.Fatal("the checkpoint cannot be compared with the runtime")
		}
	}
	for range 2 {
		if err := r.Release("a", "main"); err != nil {
			t.Fatal(err)
		}
	}
	isFree(t, r, cards0, true)
	isFree(t, r, cards1, false)
	granted, ok, err := r.Granted(t.Context(), "a")
	if err != nil || !ok || granted.PodInfo.RunningContainers["main"].AllocateFrom["ask/"+cards1] != cards1 {
		t.Errorf("the pod has %+v, %v", granted.PodInfo, err)
	}
	// The replacement is final as well.
	if again := grant(t, r, a); again.Generation != 1 {
		t.Errorf("the pod was granted generation %d again", again.Generation)
	}
}

// The caller may have read an allocation that was replaced meanwhile.
func TestThePreviousDevicesAreNotRequestedAgain(t *testing.T) {
	r, _ := open(t, newFixture())
	grant(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	requestReplacement(t, r, "a", "main")
	if _, err := r.Replace(next("a", 1, cards1), capacity); err != nil {
		t.Fatal(err)
	}
	before, _, _ := r.Granted(t.Context(), "a")
	for _, containers := range [][]string{{"main"}, nil} {
		if _, err := r.RequestReplacement("a", 0, containers); err != nil {
			t.Error(err)
		}
		after, _, _ := r.Granted(t.Context(), "a")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the node requests %q, of the previous allocation (-before +after):\n%s", containers, diff)
		}
	}
	if requestReplacement(t, r, "a", "main"); !isPending(t, r, "a", "main") {
		t.Error("nothing is asked in the place of the second device")
	}
}

func TestPreviousDevicesStayHeldDuringAnotherContainersReplacement(t *testing.T) {
	const cards2, cards3 types.ResourceName = "resource/group/gpu/g2/cards", "resource/group/gpu/g3/cards"
	one := func(types.ResourceName) (int64, bool) { return 1, true }
	w := newFixture()
	r, _ := open(t, w)
	a := wants("a", map[types.ResourceName]int64{cards0: 1})
	a.PodInfo.RunningContainers["log"] = container(map[types.ResourceName]int64{cards2: 1})
	if _, err := r.grant(&a, one); err != nil {
		t.Fatal(err)
	}
	w.run(a)
	requestReplacement(t, r, "a", "main", "log")
	if _, err := r.Replace(next("a", 1, cards1), one); err != nil {
		t.Fatal(err)
	}
	now, err := r.Replace(Replacement{PodUID: "a", Generation: 2, Containers: map[string]types.ContainerInfo{
		"log": container(map[types.ResourceName]int64{cards3: 1}),
	}}, one)
	if err != nil || len(now.Leaving["main"].AllocateFrom) != 1 || len(now.Leaving["log"].AllocateFrom) != 1 {
		t.Errorf("the allocation is %+v, %v", now, err)
	}
	isFree(t, r, cards0, false)
}

// Two devices of a pod fail, and its containers get others one after the other. The first is given
// one while the other still has what the node has no more.
func TestFailedDevicesOfTwoContainersAreReplacedOneAfterTheOther(t *testing.T) {
	const cards2, cards3 types.ResourceName = "resource/group/gpu/g2/cards", "resource/group/gpu/g3/cards"
	failed := map[types.ResourceName]bool{}
	healthy := func(name types.ResourceName) (int64, bool) {
		if failed[name] {
			return 0, true
		}
		return 1, true
	}
	w := newFixture()
	r, _ := open(t, w)
	a := wants("a", map[types.ResourceName]int64{cards0: 1})
	a.PodInfo.RunningContainers["log"] = container(map[types.ResourceName]int64{cards2: 1})
	if _, err := r.grant(&a, healthy); err != nil {
		t.Fatal(err)
	}
	w.run(a)
	requestReplacement(t, r, "a", "main", "log")
	failed[cards0], failed[cards2] = true, true
	var conflict *Conflict
	if _, err := r.Replace(next("a", 1, cards2), healthy); !errors.As(err, &conflict) {
		t.Errorf("a device that has failed takes the place of another one: %v", err)
	}
	if _, err := r.Replace(next("a", 1, cards1), healthy); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Replace(Replacement{PodUID: "a", Generation: 2, Containers: map[string]types.ContainerInfo{
		"log": container(map[types.ResourceName]int64{cards3: 1}),
	}}, healthy); err != nil {
		t.Fatal(err)
	}
}

func isPending(t *testing.T, r *Checkpoint, uid, container string) bool {
	t.Helper()
	granted, _, err := r.Granted(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	ask, asked := granted.Pending[container]
	return asked && !ask.Withdrawn
}

func TestOnlyARequestedLaterGenerationReplacesAnAllocation(t *testing.T) {
	for name, test := range map[string]struct {
		asked      []string
		generation int64
		card       types.ResourceName
		container  string
		taken      bool
		why        error
	}{
		"an answer to what was asked":            {[]string{"main"}, 1, cards1, "main", true, nil},
		"an answer of a much later generation":   {[]string{"main"}, 9, cards1, "main", true, nil},
		"nothing was asked":                      {nil, 1, cards1, "main", false, errNotRequested},
		"the answer is for another container":    {[]string{"main"}, 1, cards1, "log", false, errNotRequested},
		"the generation is the one that it has":  {[]string{"main"}, 0, cards1, "main", false, nil},
		"the device is another pod's":            {[]string{"main"}, 1, memory0, "main", false, &Conflict{}},
		"the container requested is not running": {[]string{"gone"}, 1, cards1, "gone", false, errNotRequested},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r, _ := open(t, w)
			a := wants("a", map[types.ResourceName]int64{cards1: 1})
			if test.card == cards1 {
				a = wants("a", map[types.ResourceName]int64{cards0: 1})
			} else {
				grant(t, r, wants("b", map[types.ResourceName]int64{cards0: 1}))
			}
			grant(t, r, a)
			requestReplacement(t, r, "a", test.asked...)
			answer := Replacement{PodUID: "a", Generation: test.generation, Containers: map[string]types.ContainerInfo{
				test.container: container(map[types.ResourceName]int64{test.card: 1}),
			}}
			before, _, _ := r.Granted(t.Context(), "a")
			now, err := r.Replace(answer, capacity)
			var conflict *Conflict
			if _, wantsConflict := test.why.(*Conflict); wantsConflict && !errors.As(err, &conflict) ||
				!wantsConflict && !errors.Is(err, test.why) {
				t.Errorf("error %v, want %v", err, test.why)
			}
			if taken := err == nil && now.Generation == test.generation && test.generation > 0; taken != test.taken {
				t.Errorf("taken is %v, want %v: %+v", taken, test.taken, now)
			}
			if after, _, _ := r.Granted(t.Context(), "a"); !test.taken {
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("something has changed:\n%s", diff)
				}
			}
		})
	}
	if _, err := open2(t).Replace(next("unknown", 1, cards1), capacity); !errors.Is(err, ErrNotGranted) {
		t.Errorf("a pod that holds nothing: %v", err)
	}
}

func TestTheAnswerToARefusalCountsAlsoWhenTheRefusedOneIsTakenFirst(t *testing.T) {
	for name, restart := range map[string]bool{"the same process": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r, path := open(t, w)
			a := wants("a", map[types.ResourceName]int64{cards0: 1})
			w.run(a)
			grant(t, r, a)
			requestReplacement(t, r, "a", "main")
			if err := r.Refuse("a", 1); err != nil {
				t.Fatal(err)
			}
			if restart {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r = openAt(t, w, path)
				if err := r.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			now, err := r.Replace(next("a", 1, cards1), capacity)
			if err != nil || now.Generation != 1 || isPending(t, r, "a", "main") {
				t.Fatalf("the refused generation is not taken, or the node still asks: %+v, %v", now, err)
			}
			now, err = r.Replace(next("a", 2, cards0), capacity)
			if err != nil || now.Generation != 2 || len(now.Pending) > 0 {
				t.Errorf("the scheduler's answer is not taken, or not the last one: %+v, %v", now, err)
			}
			if _, err := r.Replace(next("a", 3, cards1), capacity); !errors.Is(err, errNotRequested) {
				t.Errorf("what was not asked: %v", err)
			}
		})
	}
}

func open2(t *testing.T) *Checkpoint {
	r, _ := open(t, newFixture())
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAReleasedDeviceIsNotAllocatedToAnotherContainerOfItsPod(t *testing.T) {
	w := newFixture()
	r, _ := open(t, w)
	a := wants("a", map[types.ResourceName]int64{cards0: 1})
	a.PodInfo.RunningContainers["log"] = container(map[types.ResourceName]int64{memory0: 0})
	grant(t, r, a)
	requestReplacement(t, r, "a", "main", "log")
	if _, err := r.Replace(next("a", 1, cards1), capacity); err != nil {
		t.Fatal(err)
	}
	other := next("a", 2, cards0)
	other.Containers["log"] = other.Containers["main"]
	delete(other.Containers, "main")
	var conflict *Conflict
	if _, err := r.Replace(other, capacity); !errors.As(err, &conflict) {
		t.Errorf("container log gets what main may still use: %v", err)
	}
	if err := r.Release("a", "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Replace(other, capacity); err != nil {
		t.Errorf("container log does not get what main has left: %v", err)
	}
}

func TestASecondReplacementLeavesBothDevices(t *testing.T) {
	w := newFixture()
	r, _ := open(t, w)
	grant(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	for generation, card := range []types.ResourceName{cards1, cards0} {
		requestReplacement(t, r, "a", "main")
		if _, err := r.Replace(next("a", int64(generation+1), card), capacity); err != nil {
			t.Fatal(err)
		}
	}
	// It came back to the first one: only the second one is left.
	granted, _, _ := r.Granted(t.Context(), "a")
	if left := granted.Leaving["main"].AllocateFrom; len(left) != 1 || left[cards1] != cards1 {
		t.Errorf("it leaves %v", left)
	}
}

func TestARequestKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		r, _ := open(t, w)
		grant(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
		began := time.Now().UTC()
		if since := requestReplacement(t, r, "a", "main"); !since.Equal(began) {
			t.Errorf("asked since %v, want %v", since, began)
		}
		time.Sleep(time.Minute)
		w.active["a"] = true
		r = restart(t, w, r)
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if since := requestReplacement(t, r, "a", "main"); !since.Equal(began) {
			t.Errorf("after a restart, asked since %v, want %v", since, began)
		}
		requestReplacement(t, r, "a")
		if granted, _, _ := r.Granted(t.Context(), "a"); !granted.Pending["main"].Withdrawn {
			t.Errorf("taken back: %+v", granted.Pending)
		}
		// An answer that was on its way counts.
		time.Sleep(time.Minute)
		if since := requestReplacement(t, r, "a", "main"); !since.Equal(time.Now().UTC()) {
			t.Errorf("requested again since %v", since)
		}
		requestReplacement(t, r, "a")
		if now, err := r.Replace(next("a", 1, cards1), capacity); err != nil || now.Generation != 1 {
			t.Errorf("an answer to what was taken back: %v", err)
		}
		if _, err := r.RequestReplacement("unknown", 0, []string{"main"}); !errors.Is(err, ErrNotGranted) {
			t.Errorf("for a pod that holds nothing: %v", err)
		}
	})
}

// The node's clock may be set back between the two.
func TestTheLastContainerOfANameCountsWithAnyClock(t *testing.T) {
	first := wants("a", map[types.ResourceName]int64{cards0: 1})
	second := wants("a", map[types.ResourceName]int64{cards1: 1})
	for name, test := range map[string]struct {
		attempt uint32
		since   time.Duration
		exited  bool
	}{
		"created later":                               {since: time.Minute},
		"created later, and has ended":                {attempt: 1, since: time.Minute, exited: true},
		"created earlier by the clock, and runs":      {attempt: 1, since: -time.Hour},
		"created earlier by the clock, and has ended": {attempt: 1, since: -time.Hour, exited: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.run(first)
			pod := w.pods["a"]
			old := pod.Containers[0]
			old.Exited = true
			pod.Containers = []RuntimeContainer{{
				ID: "new", Name: "main", Attempt: test.attempt, Created: created.Add(test.since),
				Encoded: w.encoded(second, "main"), Exited: test.exited,
			}, old}
			w.pods["a"] = pod
			r, _ := open(t, w) // without a file
			granted, ok, err := r.Granted(t.Context(), "a")
			if err != nil || !ok || granted.PodInfo.RunningContainers["main"].AllocateFrom[cards1] != cards1 {
				t.Errorf("what came back is %+v, %v", granted.PodInfo, err)
			}
		})
	}
}

// A device was replaced and given to pod b, and the record was lost before the next container of
// pod a was created.
func TestARecoveredDeviceBelongsToThePodThatRuns(t *testing.T) {
	w := newFixture()
	w.run(wants("a", map[types.ResourceName]int64{cards0: 1}))
	w.pods["a"].Containers[0].Exited = true
	w.run(wants("b", map[types.ResourceName]int64{cards0: 1}))
	w.pods["b"].Containers[0].Created = created.Add(time.Minute)
	r := reconciled(t, w)
	if held := r.List(); len(held) != 1 || held[0].PodUID != "b" {
		t.Errorf("what came back is %+v", held)
	}
}

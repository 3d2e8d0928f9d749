// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
)

// since is when kubecri came to the node of these tests.
var since = time.Unix(installed, 0)

func sandboxOf(id string, created time.Time, size nribound.Size) nrilist.Sandbox {
	return nrilist.Sandbox{PodSandbox: &api.PodSandbox{Id: id}, Created: created, Size: size}
}

// ids returns the IDs of what is ended, in its order.
func ids(endings []ending) (ids []string) {
	for _, e := range endings {
		id := e.container.ID
		if id == "" {
			id = e.sandbox.GetId()
		}
		ids = append(ids, id)
	}
	return ids
}

// Each selection by itself: Prepare makes one after another, and a later one hides what an earlier
// one does.
func TestNoSelectionHasWhatIsOlderThanKubecri(t *testing.T) {
	const tooMuch = nribound.MaxObject + 1
	for name, test := range map[string]struct {
		choose func(nrilist.List, time.Time) []ending
		size   int // of sandboxes and containers
		want   []string
	}{
		"too large":          {tooLarge, tooMuch, []string{"young", "young-in-old", "young-in-young"}},
		"without containers": {emptySandboxes, 100, []string{"empty"}},
		"others":             {young, 100, []string{"empty", "young", "young-in-old", "young-in-young"}},
	} {
		t.Run(name, func(t *testing.T) {
			size := nribound.Size{Bytes: test.size}
			list := nrilist.List{
				Sandboxes: []nrilist.Sandbox{
					sandboxOf("old", since.Add(-1), size), sandboxOf("young", since, size),
					sandboxOf("empty-old", since.Add(-1), nribound.Size{}), sandboxOf("empty", since, nribound.Size{}),
				},
				Containers: []nrilist.Container{
					{ID: "old-in-old", Sandbox: "old", Created: since.Add(-1), Size: size},
					{ID: "young-in-old", Sandbox: "old", Created: since, Size: size},
					{ID: "young-in-young", Sandbox: "young", Created: since, Size: size},
				},
			}
			if got := slices.Sorted(slices.Values(ids(test.choose(list, since)))); !slices.Equal(got, test.want) {
				t.Errorf("%v are chosen, want %v", got, test.want)
			}
		})
	}
}

func TestTheOneThatTakesLongestToSendIsEndedFirst(t *testing.T) {
	sizes := []nribound.Size{{Bytes: 100, Strings: 1}, {Bytes: 20_000, Strings: 9000}, {Bytes: 300_000, Strings: 10}}
	var list nrilist.List
	for i, size := range sizes {
		list.Sandboxes = append(list.Sandboxes, sandboxOf(strconv.Itoa(i), since, size))
	}
	want := []string{"1", "2", "0"} // 9000 short strings take longer than 300,000 bytes of long ones
	for name, choose := range map[string]func(nrilist.List, time.Time) []ending{
		"without containers": emptySandboxes, "others": young,
	} {
		if got := ids(choose(list, since)); !slices.Equal(got, want) {
			t.Errorf("%s: they are ended in the order %v, want %v", name, got, want)
		}
	}
	for i := range list.Sandboxes {
		list.Sandboxes[i].Size.Bytes += nribound.MaxObject
	}
	if got := ids(tooLarge(list, since)); !slices.Equal(got, want) {
		t.Errorf("too large: they are ended in the order %v, want %v", got, want)
	}
}

func TestASandboxCountsInTheSumOfItsPod(t *testing.T) {
	half := nribound.Size{Bytes: nribound.MaxObject / 2}
	for name, test := range map[string]struct {
		sandbox nribound.Size
		want    []string
	}{
		"a small one":          {nribound.Size{}, nil},
		"a large one":          {nribound.Size{Bytes: nribound.MaxObject}, []string{"a", "b"}},
		"one of short strings": {nribound.Size{Strings: nribound.MaxStrings + 1000}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			more := half
			more.Strings = 1
			list := nrilist.List{
				Sandboxes: []nrilist.Sandbox{sandboxOf("pod", since, test.sandbox)},
				Containers: []nrilist.Container{
					{ID: "a", Sandbox: "pod", Created: since, Size: more},
					{ID: "b", Sandbox: "pod", Created: since, Size: half},
				},
			}
			if got := slices.Sorted(slices.Values(ids(tooLarge(list, since)))); !slices.Equal(got, test.want) {
				t.Errorf("%v are chosen, want %v", got, test.want)
			}
		})
	}
}

func TestWhereAllIsWithinTheBoundsOfAPodTheLargestAreEnded(t *testing.T) {
	l := newListing(t)
	l.admitted(260)
	if err := l.frontend.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(l.ended)
	if n := len(l.ended); n == 0 || n > 20 || l.ended[0] != fmt.Sprint("admitted", 260-n) {
		t.Errorf("%v are ended, want the largest", l.ended)
	}
}

func TestContainersOlderThanKubecriStayInAPodThatIsTooLarge(t *testing.T) {
	l := newListing(t)
	old := l.pod("old", "")
	old.Uid, l.older = "plain", map[string]bool{old.GetId(): true}
	l.sandbox = append(l.sandbox, old)
	for i := range 40 {
		l.running = append(l.running, &api.Container{
			Id: fmt.Sprint("c", i), PodSandboxId: old.GetId(), Name: fmt.Sprint("c", i),
			CreatedAt: (installed - 1 + int64(i%2)*2) * 1e9, Env: variables(150 << 10),
		})
	}
	if err := l.frontend.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.ended) == 0 || slices.ContainsFunc(l.ended, func(id string) bool {
		var i int
		_, err := fmt.Sscanf(id, "c%d", &i)
		return err != nil || i%2 == 0
	}) {
		t.Errorf("%v are ended", l.ended)
	}
}

func TestNothingIsEndedWhereWhatIsOlderThanKubecriIsTheReason(t *testing.T) {
	l := newListing(t)
	for _, name := range []string{"oldempty", "old"} {
		pod := l.pod(name, "")
		pod.Uid, pod.Annotations["large"] = "plain", strings.Repeat("x", nribound.MaxObject+1)
		l.sandbox = append(l.sandbox, pod)
	}
	l.older = map[string]bool{"sandbox-oldempty": true, "sandbox-old": true}
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	old := append(large(8, 900<<10, installed-1), large(1, 99, installed-1, "NVIDIA_VISIBLE_DEVICES=all")...)
	for _, c := range old {
		c.PodSandboxId = "sandbox-old"
	}
	l.running = append(old, large(1, nribound.MaxObject+1, installed+1)...)
	if err := l.frontend.Prepare(t.Context()); err == nil {
		t.Error("it connects")
	}
	if len(l.ended) > 0 {
		t.Errorf("%v are ended", l.ended)
	}
}

func TestSandboxesThatAreTooLargeAreEndedAndOlderOnesStay(t *testing.T) {
	l := newListing(t)
	for _, name := range []string{"old", "young"} {
		pod := l.pod(name, "")
		pod.Uid, pod.Annotations["large"] = "plain", strings.Repeat("x", 3<<20)
		l.sandbox = append(l.sandbox, pod)
		l.running = append(l.running, &api.Container{
			Id: "of-" + name, PodSandboxId: pod.GetId(), Name: "main", CreatedAt: (installed + 1) * 1e9,
		})
	}
	l.older = map[string]bool{"sandbox-old": true}
	if err := l.frontend.Prepare(t.Context()); err != nil || !slices.Equal(l.ended, []string{"sandbox-young"}) {
		t.Errorf("%v are ended, %v", l.ended, err)
	}
}

func TestContainersThatWouldHaveBeenRefusedForTheirSizeAreEndedBeforeOthers(t *testing.T) {
	l := newListing(t)
	attacker := l.pod("attacker", "")
	l.sandbox = append(l.sandbox, attacker)
	for i := range 400 {
		l.running = append(l.running, &api.Container{
			Id: fmt.Sprint("c", i), PodSandboxId: attacker.GetId(), Name: fmt.Sprint("c", i),
			CreatedAt: (installed + 1) * 1e9, Env: variables(100 << 10),
		})
	}
	for i := range 8 {
		other := l.pod(fmt.Sprint("other", i), "")
		l.sandbox = append(l.sandbox, other)
		l.running = append(l.running, &api.Container{
			Id: other.GetName(), PodSandboxId: other.GetId(), Name: "main",
			CreatedAt: (installed + 1) * 1e9, Env: variables(110 << 10),
		})
	}
	if err := l.frontend.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.ended) == 0 || slices.ContainsFunc(l.ended, func(id string) bool { return !strings.HasPrefix(id, "c") }) {
		t.Errorf("%v are ended, want containers of one pod", l.ended)
	}
}

func TestTheLargestPodsAreEndedWhereTheirSandboxesAreTheReason(t *testing.T) {
	l := newListing(t)
	for i := range 60 {
		pod := l.pod(fmt.Sprint("pod", i), "")
		pod.Annotations["large"] = strings.Repeat("x", 150_000+i)
		l.sandbox = append(l.sandbox, pod)
	}
	l.running = append(l.running, &api.Container{Id: "system", PodSandboxId: "sandbox-pod0", Name: "main"})
	if err := l.frontend.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var largest []string
	for i := range l.ended {
		largest = append(largest, fmt.Sprint("sandbox-pod", 59-i))
	}
	slices.Sort(l.ended)
	if len(l.ended) == 0 || len(l.ended) > 40 || !slices.Equal(l.ended, slices.Sorted(slices.Values(largest))) {
		t.Errorf("%v are ended, want the largest", l.ended)
	}
}

func TestSandboxesWithoutContainersAreRemovedFirst(t *testing.T) {
	l := newListing(t)
	for i := range 100 { // of pods that have finished
		pod := l.pod(fmt.Sprint("finished", i), "")
		pod.Annotations["large"] = strings.Repeat("x", 150_000)
		l.sandbox = append(l.sandbox, pod)
	}
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = large(3, 150<<10, installed+1)
	if err := l.frontend.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.ended) == 0 || slices.ContainsFunc(l.ended, func(id string) bool {
		return !strings.HasPrefix(id, "sandbox-finished")
	}) {
		t.Errorf("%v are ended, want sandboxes of finished pods alone", l.ended)
	}
}

// A pod that pulls an image, or waits to start again, has no container that runs.
func TestSandboxesOfOthersStayWhereOneContainerIsTooLarge(t *testing.T) {
	l := newListing(t)
	for i := range 30 {
		l.sandbox = append(l.sandbox, l.pod(fmt.Sprint("waiting", i), ""))
	}
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = large(1, nribound.Message, installed+1)
	tooLarge := l.running[0].GetId()
	if err := l.frontend.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.ended, []string{tooLarge}) {
		t.Errorf("%d are ended, %d of them sandboxes of others", len(l.ended),
			strings.Count(strings.Join(l.ended, " "), "waiting"))
	}
}

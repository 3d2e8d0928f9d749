// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const nics, accels types.ResourceName = "vendor.example/nic", "vendor.example/accel"

// kubelets is a device of a resource that moved from the kubelet.
func kubelets(resource types.ResourceName, id string, numa ...int) types.ResourceName {
	name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: resource, ID: id, NUMA: numa})
	if err != nil {
		panic(err)
	}
	return name
}

// adoptable is a pod of which the API server knows, and to whose only container the kubelet gave
// these devices.
func adoptable(uid string, devices ...types.ResourceName) AdoptablePod {
	info := types.NewPodInfo()
	info.Name, info.NodeName = "pod-"+uid, "node-1"
	info.RunningContainers["main"] = AdoptedContainer(devices)
	return AdoptablePod{Listed: true, Allocation: Allocation{
		PodUID: uid, Namespace: "default", Name: "pod-" + uid, Adopted: true, PodInfo: info,
	}}
}

// adopting lets the checkpoints of a fixture see what the kubelet gave, which the test may change.
func adopting(t *testing.T, w *fixture, now *Adoptable) *Checkpoint {
	t.Helper()
	options := w.options(t, t.TempDir()+"/grants")
	options.Adoptable = func() (Adoptable, error) { return *now, nil }
	c := New(options)
	t.Cleanup(func() { c.Close() })
	return c
}

// held returns which pods hold which devices, as "uid device".
func held(c *Checkpoint) []string {
	var all []string
	for _, a := range c.List() {
		for _, name := range slices.Sorted(maps.Keys(a.Holds())) {
			all = append(all, a.PodUID+" "+string(name))
		}
	}
	return all
}

// What is written must be read again: a pod whose devices do not fit would cost all others theirs.
func TestAPodWithMoreDevicesThanCanBeRecordedIsNotAdopted(t *testing.T) {
	var many []types.ResourceName
	for i := range 2000 {
		many = append(many, kubelets(nics, fmt.Sprintf("a-device-with-quite-a-long-id-%d", i), 0))
	}
	w := newFixture()
	now := Adoptable{Pods: []AdoptablePod{adoptable("u", many...), adoptable("v", kubelets(accels, "b"))}}
	w.active["u"], w.active["v"] = true, true
	c := adopting(t, w, &now)
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if why := c.Withheld()[many[0]]; c.Has("u") || !strings.Contains(why, "default/pod-u") {
		t.Errorf("adopted: %v, withheld: %q", c.Has("u"), why)
	}
	if list, err := Read(c.file.Path); err != nil || len(list) != 1 {
		t.Errorf("the file has %v, %v", list, err)
	}
}

func TestPodsThatHoldDevicesOfTheKubeletAreAdoptedForAsLongAsTheyAreThere(t *testing.T) {
	w := newFixture()
	a, b := kubelets(nics, "a", 0), kubelets(nics, "b")
	now := Adoptable{
		Kubelets: map[types.ResourceName]bool{accels: true},
		Pods:     []AdoptablePod{adoptable("u", a), adoptable("v", b), adoptable("gone", b)},
	}
	w.active["u"], w.active["v"] = true, true
	c := adopting(t, w, &now)
	expect := func(what string, want ...string) {
		t.Helper()
		if err := c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, held(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if withheld := c.Withheld(); len(withheld) > 0 {
			t.Errorf("%s: withheld %v", what, withheld)
		}
	}
	expect("at first", "u "+string(a), "v "+string(b))

	// Another pod is not granted what one of them holds, under whatever name.
	wanted := wants("new", map[types.ResourceName]int64{kubelets(nics, "a", 1): 1})
	everything := func(types.ResourceName) (int64, bool) { return 1, true }
	only := func(name types.ResourceName) (int64, bool) { return 1, name == kubelets(nics, "a", 1) }
	var conflict *Conflict
	if _, err := c.Grant(t.Context(), wanted, only); !errors.As(err, &conflict) ||
		!slices.Equal(conflict.Holders, []string{"default/pod-u"}) {
		t.Errorf("a second pod with an adopted device: %v", err)
	}
	if _, err := c.Grant(t.Context(), wants("new", map[types.ResourceName]int64{kubelets(nics, "c"): 1}),
		everything); err != nil {
		t.Error(err)
	}
	w.active["new"] = true

	// The kubelet has lost what it knew: the record stays.
	all := now.Pods
	now = Adoptable{}
	free := "new " + string(kubelets(nics, "c"))
	expect("without a word of the kubelet's", free, "u "+string(a), "v "+string(b))
	now.Pods = all
	c = adoptingAgain(t, w, c, &now)
	expect("after a restart", free, "u "+string(a), "v "+string(b))

	// Its next resource moves, and one moves back.
	d := kubelets(accels, "d")
	now.Pods = []AdoptablePod{adoptable("u", a, d), adoptable("v", b)}
	expect("with two resources", free, "u "+string(a), "u "+string(d), "v "+string(b))
	now.Kubelets = map[types.ResourceName]bool{nics: true}
	now.Pods = []AdoptablePod{adoptable("u", d)}
	expect("when one has moved back", free, "u "+string(d))

	// A pod that is gone is forgotten, although the kubelet has not noticed.
	w.active["u"] = false
	expect("without the pod", free)
}

// adoptingAgain returns the checkpoint as the next process has it.
func adoptingAgain(t *testing.T, w *fixture, c *Checkpoint, now *Adoptable) *Checkpoint {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	options := w.options(t, c.file.Path)
	options.Adoptable = func() (Adoptable, error) { return *now, nil }
	next := New(options)
	t.Cleanup(func() { next.Close() })
	return next
}

func TestADeviceWhoseHolderIsNotCertainIsWithheldUntilItIs(t *testing.T) {
	a := kubelets(nics, "a")
	unknown := AdoptablePod{Allocation: adoptable("u", a).Allocation}
	gone := unknown
	gone.Gone = true
	for name, test := range map[string]struct {
		pod    AdoptablePod
		active bool
		live   bool
		says   string // of the device, which is withheld; empty for one that is not
		holds  bool
	}{
		"a pod of the API server's":               {pod: adoptable("u", a), active: true, holds: true},
		"a pod that was deleted":                  {pod: adoptable("u", a)},
		"a pod that was deleted and still runs":   {pod: adoptable("u", a), live: true, says: "still runs"},
		"a pod that the API server does not have": {pod: gone},
		"a static pod": {
			pod: gone, live: true, says: "default/static, to which the kubelet gave it, is not the API server's",
		},
		"a pod while the API server is away": {pod: unknown, says: "when the API server has listed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.active["u"] = test.active
			if test.live {
				w.pods["u"] = RuntimeState{Live: true, Namespace: "default", Name: "static"}
			}
			now := Adoptable{Pods: []AdoptablePod{test.pod}}
			c := adopting(t, w, &now)
			if err := c.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.Has("u") != test.holds {
				t.Errorf("it is adopted: %t", c.Has("u"))
			}
			why, withheld := c.Withheld()[a]
			if withheld != (test.says != "") || !strings.Contains(why, test.says) {
				t.Errorf("it is withheld: %t, %q", withheld, why)
			}
			w.pods, w.active["u"] = map[string]RuntimeState{}, false
			now.Pods = nil
			if err := c.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(c.Withheld())+len(c.List()) > 0 {
				t.Errorf("when the pod is gone, %v is withheld, and %v hold devices", c.Withheld(), c.List())
			}
		})
	}
}

// The pod was bound by the scheduler to a device of a resource that is this program's, and the
// kubelet gave it one of another, which moves now.
func TestAPodWithAnAllocationIsNotAdopted(t *testing.T) {
	w := newFixture()
	now := Adoptable{}
	c := adopting(t, w, &now)
	w.active["u"] = true
	if _, err := c.Grant(t.Context(), wants("u", map[types.ResourceName]int64{cards0: 1}), capacity); err != nil {
		t.Fatal(err)
	}
	a := kubelets(nics, "a")
	now = Adoptable{Pods: []AdoptablePod{adoptable("u", a)}}
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"u " + string(cards0)}, held(c)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if why := c.Withheld()[a]; !strings.Contains(why, "default/pod-u") {
		t.Errorf("the device is withheld with %q", why)
	}
}

func TestADeviceOfTwoPodsBelongsToTheFirst(t *testing.T) {
	w := newFixture()
	w.active["u"], w.active["v"] = true, true
	a, sameDevice := kubelets(nics, "a"), kubelets(nics, "a", 3)
	now := Adoptable{Pods: []AdoptablePod{adoptable("u", a), adoptable("v", sameDevice)}}
	c := adopting(t, w, &now)
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"u " + string(a)}, held(c)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if why := c.Withheld()[sameDevice]; !strings.Contains(why, "default/pod-u") {
		t.Errorf("the device is withheld with %q", why)
	}
}

func TestNothingIsGrantedWhileItIsUnknownWhatTheKubeletGave(t *testing.T) {
	w := newFixture()
	options := w.options(t, t.TempDir()+"/grants")
	unreadable := errors.New("unreadable")
	options.Adoptable = func() (Adoptable, error) { return Adoptable{}, unreadable }
	c := New(options)
	t.Cleanup(func() { c.Close() })
	_, err := c.Grant(t.Context(), wants("u", map[types.ResourceName]int64{cards0: 1}), capacity)
	if !errors.Is(err, unreadable) {
		t.Errorf("a grant says %v", err)
	}
}

func TestContainersOfAdoptedPodsCarryNothing(t *testing.T) {
	w := newFixture()
	now := Adoptable{Pods: []AdoptablePod{adoptable("u", kubelets(nics, "a"))}}
	w.active["u"] = true
	w.pods["u"] = RuntimeState{Live: true, Namespace: "default", Name: "pod-u", Containers: []RuntimeContainer{
		{ID: "1", Name: "main", Created: created},
	}}
	c := adopting(t, w, &now)
	for range 2 {
		if err := c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.findings) > 0 {
		t.Errorf("findings %v", w.findings)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// What is written must be read again: a pod whose devices do not fit would cost all others theirs.
func TestAPodWithMoreDevicesThanCanBeRecordedIsNotAdopted(t *testing.T) {
	var many []types.ResourceName
	for i := range 2000 {
		many = append(many, kubelets(nics, fmt.Sprintf("a-device-with-quite-a-long-id-%d", i), 0))
	}
	f := newFixture()
	f.candidates = []candidate{listed("u", many...), listed("v", kubelets(accels, "b"))}
	f.active["u"], f.active["v"] = true, true
	path := filepath.Join(t.TempDir(), "grants")
	c := f.checkpoint(t, path)
	reconcile(t, c)
	if reason := f.adopter.Withheld()[many[0]]; c.Has("u") || !strings.Contains(reason, "default/pod-u") {
		t.Errorf("adopted: %v, withheld: %q", c.Has("u"), reason)
	}
	if list, err := grants.Read(path); err != nil || len(list) != 1 {
		t.Errorf("the file has %v, %v", list, err)
	}
}

func TestPodsThatHoldDevicesOfTheKubeletAreAdoptedForAsLongAsTheyAreThere(t *testing.T) {
	f := newFixture()
	a, b := kubelets(nics, "a", 0), kubelets(nics, "b")
	f.kubelets = map[entry]bool{{"u", "main", accels}: true, {"w", "main", nics}: true}
	f.candidates = []candidate{listed("u", a), listed("v", b), listed("gone", b)}
	f.active["u"], f.active["v"] = true, true
	path := filepath.Join(t.TempDir(), "grants")
	c := f.checkpoint(t, path)
	expect := func(what string, want ...string) {
		t.Helper()
		reconcile(t, c)
		if diff := cmp.Diff(want, held(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if withheld := f.adopter.Withheld(); len(withheld) > 0 {
			t.Errorf("%s: withheld %v", what, withheld)
		}
	}
	expect("at first", "u "+string(a), "v "+string(b))

	// Another pod is not granted what one of them holds, under any name.
	wanted := wants("new", kubelets(nics, "a", 1))
	only := func(name types.ResourceName) (int64, bool) { return 1, name == kubelets(nics, "a", 1) }
	var conflict *grants.Conflict
	if _, err := c.Grant(t.Context(), wanted, only); !errors.As(err, &conflict) ||
		!slices.Equal(conflict.Holders, []string{"default/pod-u"}) {
		t.Errorf("a second pod with an adopted device: %v", err)
	}
	if _, err := c.Grant(t.Context(), wants("new", kubelets(nics, "c")), one); err != nil {
		t.Error(err)
	}
	f.active["new"] = true

	// The kubelet has lost what it knew: the record stays.
	all := f.candidates
	f.kubelets, f.candidates = nil, nil
	free := "new " + string(kubelets(nics, "c"))
	expect("without a word of the kubelet's", free, "u "+string(a), "v "+string(b))
	f.candidates = all
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = f.checkpoint(t, path)
	expect("after a restart", free, "u "+string(a), "v "+string(b))

	// Its next resource moves, and one moves back.
	d := kubelets(accels, "d")
	f.candidates = []candidate{listed("u", a, d), listed("v", b)}
	expect("with two resources", free, "u "+string(a), "u "+string(d), "v "+string(b))
	f.kubelets = map[entry]bool{{"u", "main", nics}: true}
	f.candidates = []candidate{listed("u", d)}
	expect("when one has moved back, of which the kubelet has forgotten a device", free, "u "+string(d), "v "+string(b))
	f.kubelets = map[entry]bool{{"u", "main", nics}: true, {"v", "main", nics}: true}
	expect("when the kubelet knows both", free, "u "+string(d))

	// A pod that is gone is forgotten, although the kubelet has not noticed.
	f.active["u"] = false
	expect("without the pod", free)
}

func TestADeviceWhoseHolderIsNotCertainIsWithheldUntilItIs(t *testing.T) {
	a := kubelets(nics, "a")
	unknown := candidate{Allocation: listed("u", a).Allocation}
	gone := unknown
	gone.gone = true
	for name, test := range map[string]struct {
		pod    candidate
		active bool
		live   bool
		says   string // of the device, which is withheld; empty for one that is not
		holds  bool
	}{
		"a pod of the API server's":               {pod: listed("u", a), active: true, holds: true},
		"a pod that was deleted":                  {pod: listed("u", a)},
		"a pod that was deleted and still runs":   {pod: listed("u", a), live: true, says: "still runs"},
		"a pod that the API server does not have": {pod: gone},
		"a static pod": {
			pod: gone, live: true, says: "default/static, to which the kubelet allocated it, is not the API server's",
		},
		"a pod while the API server is away": {pod: unknown, says: "when the API server has listed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.active["u"] = test.active
			if test.live {
				f.pods["u"] = grants.RuntimeState{Live: true, Namespace: "default", Name: "static"}
			}
			f.candidates = []candidate{test.pod}
			c := f.checkpoint(t, filepath.Join(t.TempDir(), "grants"))
			reconcile(t, c)
			if c.Has("u") != test.holds {
				t.Errorf("it is adopted: %t", c.Has("u"))
			}
			reason, withheld := f.adopter.Withheld()[a]
			if withheld != (test.says != "") || !strings.Contains(reason, test.says) {
				t.Errorf("it is withheld: %t, %q", withheld, reason)
			}
			f.pods, f.active["u"] = map[string]grants.RuntimeState{}, false
			f.candidates = nil
			reconcile(t, c)
			if len(f.adopter.Withheld())+len(c.List()) > 0 {
				t.Errorf("when the pod is gone, %v is withheld, and %v hold devices", f.adopter.Withheld(), c.List())
			}
		})
	}
}

// The pod was bound by the scheduler to a device of a resource that is this program's, and the
// kubelet allocated it one of another, which moves now.
func TestAPodWithAnAllocationIsNotAdopted(t *testing.T) {
	f := newFixture()
	c := f.checkpoint(t, filepath.Join(t.TempDir(), "grants"))
	f.active["u"] = true
	if _, err := c.Grant(t.Context(), wants("u", cards), one); err != nil {
		t.Fatal(err)
	}
	a := kubelets(nics, "a")
	f.candidates = []candidate{listed("u", a)}
	reconcile(t, c)
	if diff := cmp.Diff([]string{"u " + string(cards)}, held(c)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if reason := f.adopter.Withheld()[a]; !strings.Contains(reason, "default/pod-u") {
		t.Errorf("the device is withheld with %q", reason)
	}
}

func TestADeviceOfTwoPodsBelongsToTheFirst(t *testing.T) {
	f := newFixture()
	f.active["u"], f.active["v"] = true, true
	a, sameDevice := kubelets(nics, "a"), kubelets(nics, "a", 3)
	f.candidates = []candidate{listed("u", a), listed("v", sameDevice)}
	c := f.checkpoint(t, filepath.Join(t.TempDir(), "grants"))
	reconcile(t, c)
	if diff := cmp.Diff([]string{"u " + string(a)}, held(c)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if reason := f.adopter.Withheld()[sameDevice]; !strings.Contains(reason, "default/pod-u") {
		t.Errorf("the device is withheld with %q", reason)
	}
}

func TestNothingIsGrantedWhileItIsUnknownWhatTheKubeletAllocated(t *testing.T) {
	f := newFixture()
	f.err = errUnreadable
	c := f.checkpoint(t, filepath.Join(t.TempDir(), "grants"))
	if _, err := c.Grant(t.Context(), wants("u", cards), one); !errors.Is(err, errUnreadable) {
		t.Errorf("a grant says %v", err)
	}
}

// They have no annotation of a grant, and that is no finding.
func TestContainersOfAdoptedPodsNeedNoAnnotation(t *testing.T) {
	f := newFixture()
	f.candidates = []candidate{listed("u", kubelets(nics, "a"))}
	f.active["u"] = true
	f.pods["u"] = grants.RuntimeState{
		Live: true, Namespace: "default", Name: "pod-u",
		Containers: []grants.RuntimeContainer{{ID: "1", Name: "main", Created: time.Now().Add(time.Hour)}},
	}
	c := f.checkpoint(t, filepath.Join(t.TempDir(), "grants"))
	for range 2 {
		reconcile(t, c)
	}
}

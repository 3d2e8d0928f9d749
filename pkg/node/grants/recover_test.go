// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reconciled returns the checkpoint of a node that lost its own, after it was compared with the
// runtime.
func reconciled(t *testing.T, w *fixture) *Checkpoint {
	t.Helper()
	r, _ := open(t, w)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// reasons returns what was found, as pod/container reason.
func (w *fixture) reasons() []string {
	var all []string
	for _, f := range w.findings {
		all = append(all, f.Name+"/"+f.Container+" "+string(f.Reason))
	}
	slices.Sort(all)
	return all
}

// A restored checkpoint image brings the annotation of any container along, into a pod that holds
// nothing. The victim keeps its device, and the forger gets none, also when the checkpoint is lost.
func TestASignedPartCountsForItsOwnPodContainerAndNodeOnly(t *testing.T) {
	victim := wants("victim", map[types.ResourceName]int64{cards0: 1})
	legacy, err := deviceinfo.EncodePod(victim.PodInfo)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		carried func(w *fixture) string
		change  func(pod *RuntimeState)
		reason  Reason
	}{
		"the victim's annotation": {
			carried: func(w *fixture) string { return w.encoded(victim, "main") }, reason: Forged,
		},
		"the victim's annotation in a container of the same name in a pod of the same name": {
			carried: func(w *fixture) string { return w.encoded(victim, "main") },
			change:  func(pod *RuntimeState) { pod.Name, pod.Namespace = victim.Name, victim.Namespace },
			reason:  Forged,
		},
		"that of another container of the pod": {
			carried: func(w *fixture) string {
				return w.encoded(wants("forger", map[types.ResourceName]int64{cards0: 1}), "main")
			},
			change: func(pod *RuntimeState) { pod.Containers[0].Name = "side" }, reason: Forged,
		},
		"one that another node signed": {
			carried: func(w *fixture) string {
				key := *w.key
				key.node = "node-2"
				other := &fixture{key: &key}
				return other.encoded(wants("forger", map[types.ResourceName]int64{cards0: 1}), "main")
			},
			reason: Forged,
		},
		"one that was signed by a lost key": {
			carried: func(*fixture) string {
				key := &nodeKey{node: "node-1", keyContent: keyContent{Key: bytes.Repeat([]byte{8}, keyBytes)}}
				other := &fixture{key: key}
				return other.encoded(wants("forger", map[types.ResourceName]int64{cards0: 1}), "main")
			},
			reason: Forged,
		},
		"a changed part behind a good signature": {
			carried: func(w *fixture) string {
				encoded := w.encoded(wants("forger", map[types.ResourceName]int64{cards1: 1}), "main")
				return strings.Replace(encoded, "gpu/g1", "gpu/g0", 1)
			},
			reason: Forged,
		},
		"what an earlier release wrote": {carried: func(*fixture) string { return legacy }, reason: Unsigned},
		"no signature":                  {carried: func(*fixture) string { return "v1." }, reason: Forged},
		"an empty signature":            {carried: func(*fixture) string { return `v1..{}` }, reason: Forged},
		"what cannot be read, signed": {
			carried: func(w *fixture) string {
				return w.key.sign(subject{"forger", "default", "pod-forger", "main"}, `{"devices":1}`)
			},
			reason: Unreadable,
		},
	} {
		for _, recordLost := range []bool{true, false} {
			w := newFixture()
			var r *Checkpoint
			w.run(victim)
			if !recordLost {
				r, _ = open(t, w)
				grant(t, r, victim)
			}
			forger := RuntimeState{Live: true, Namespace: "default", Name: "pod-forger", Containers: []RuntimeContainer{
				{ID: "forged", Name: "main", Created: created.Add(-time.Minute), Encoded: test.carried(w)},
			}}
			if test.change != nil {
				test.change(&forger)
			}
			w.pods["forger"], w.active["forger"] = forger, true
			if recordLost {
				r = reconciled(t, w)
			}
			for range 2 { // a finding is reported once
				if err := r.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.List(); len(got) != 1 || got[0].PodUID != "victim" {
				t.Errorf("%s, record lost %v: the checkpoint has %v, want the victim alone", name, recordLost, got)
			}
			if len(w.findings) != 1 || w.findings[0].Reason != test.reason || w.findings[0].PodUID != "forger" ||
				!strings.Contains(w.findings[0].Message, "no device is held because of it") {
				t.Errorf("%s, record lost %v: found %+v, want one of pod forger: %s",
					name, recordLost, w.findings, test.reason)
			}
		}
	}
}

func TestContainersOlderThanTheKeyAreNotReportedWhileTheCheckpointHasTheirPod(t *testing.T) {
	pod := wants("a", map[types.ResourceName]int64{cards0: 1})
	legacy, err := deviceinfo.EncodePod(pod.PodInfo)
	if err != nil {
		t.Fatal(err)
	}
	before, after := -2*time.Hour, time.Hour // of the key
	for name, test := range map[string]struct {
		carried string
		created time.Duration
		want    []string
	}{
		"made by an earlier release before the upgrade":  {carried: legacy, created: before},
		"as an earlier release had it, after that":       {legacy, after, []string{"pod-a/main unsigned"}},
		"signed by a key that was lost":                  {carried: "v1.AAAA.{}", created: before},
		"without any, before there was a key":            {created: before},
		"restored without what kubecri added":            {created: after, want: []string{"pod-a/main missing"}},
		"restored with what another container carried":   {"v1.AAAA.{}", after, []string{"pod-a/main forged"}},
		"restored with what an earlier release let have": {"{}", after, []string{"pod-a/main unsigned"}},
	} {
		w := newFixture()
		r, _ := open(t, w)
		grant(t, r, pod)
		w.run(pod)
		container := &w.pods["a"].Containers[0]
		container.Encoded, container.Created = test.carried, created.Add(test.created)
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, w.reasons()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !r.Has("a") {
			t.Errorf("%s: the record has lost the pod", name)
		}
	}
}

func TestAContainerWithoutDevicesNeedsNoSignedPart(t *testing.T) {
	pod := wants("a", map[types.ResourceName]int64{cards0: 1})
	w := newFixture()
	r, _ := open(t, w)
	grant(t, r, pod)
	w.run(pod)
	state := w.pods["a"]
	state.Containers = append(state.Containers, RuntimeContainer{ID: "side", Name: "side", Created: created})
	w.pods["a"] = state
	if err := r.Reconcile(t.Context()); err != nil || len(w.findings) > 0 {
		t.Errorf("found %v, %v", w.findings, err)
	}
}

// Of two pods that carry the same device the older one has it; what plugins have not reported yet
// is no reason to lose it.
func TestRecoveredAllocationsMustNotConflictWithOthers(t *testing.T) {
	shared := func(uid string, quantity int64) Allocation {
		return wants(uid, map[types.ResourceName]int64{memory0: quantity})
	}
	nothing := func(types.ResourceName) (int64, bool) { return 0, false }
	for name, test := range map[string]struct {
		older, newer Allocation
		capacity     Capacity
		want         []string
	}{
		"the same card twice": {
			wants("a", map[types.ResourceName]int64{cards0: 1}), wants("b", map[types.ResourceName]int64{cards0: 1}),
			capacity, []string{"a"},
		},
		"the memory of a card that another pod has": {
			wants("a", map[types.ResourceName]int64{cards0: 1}), shared("b", 1), capacity, []string{"a"},
		},
		"shares that fit together": {shared("a", 60), shared("b", 40), capacity, []string{"a", "b"}},
		"shares that do not":       {shared("a", 60), shared("b", 41), capacity, []string{"a"}},
		"shares of a device that is not reported yet": {
			shared("a", 60), shared("b", 40), nothing, []string{"a", "b"},
		},
		"shares of a device that must not be used now": {
			shared("a", 60), shared("b", 40), unhealthy, []string{"a", "b"},
		},
	} {
		w := newFixture()
		w.run(test.older)
		w.run(test.newer)
		w.pods["a"].Containers[0].Created = created.Add(-time.Second)
		options := w.options(t, filepath.Join(t.TempDir(), "grants"))
		options.Inventory = capacities(test.capacity)
		r := New(options)
		t.Cleanup(func() { r.Close() })
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range r.List() {
			got = append(got, a.PodUID)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if conflict := len(test.want) == 1; conflict != slices.Contains(w.reasons(), "pod-b/main conflicting") {
			t.Errorf("%s: found %v", name, w.findings)
		}
	}
}

func unhealthy(types.ResourceName) (int64, bool) { return 0, true }

// While its init container runs, the checkpoint of a pod's grants is lost: its other containers are
// not known until they are created. What containers have stays, also when the pod claims something
// else then.
func TestAPodThatCameBackIsGrantedWhatIsMissingAndKeepsWhatItHas(t *testing.T) {
	whole := wants("a", map[types.ResourceName]int64{cards1: 1})
	whole.PodInfo.InitContainers = map[string]types.ContainerInfo{
		"first": container(map[types.ResourceName]int64{cards0: 1}),
	}
	w := newFixture()
	w.run(whole)
	state := w.pods["a"]
	state.Containers = slices.DeleteFunc(state.Containers, func(c RuntimeContainer) bool { return c.Name == "main" })
	w.pods["a"] = state
	r := reconciled(t, w)

	back, known, err := r.Granted(t.Context(), "a")
	if err != nil || !known || back.Lacks("first") || !back.Lacks("main") {
		t.Fatalf("%+v, %v, %v: want the init container alone", back, known, err)
	}
	claim := wants("a", map[types.ResourceName]int64{cards1: 1})
	claim.PodInfo.InitContainers = map[string]types.ContainerInfo{
		"first": container(map[types.ResourceName]int64{memory0: 5}),
	}
	claim.InitOrder = []string{"first"}
	got := grant(t, r, claim)
	if diff := cmp.Diff(types.ResourceList{cards0: 1, cards1: 1}, got.Holds()); diff != "" || got.Lacks("main") {
		t.Errorf("partial %v (-want +got):\n%s", got.Partial, diff)
	}
	if again := grant(t, r, wants("a", map[types.ResourceName]int64{memory0: 5})); !cmp.Equal(again, got) {
		t.Errorf("a later claim changes it to %v", again)
	}
	onDisk, err := Read(r.file.Path)
	if diff := cmp.Diff([]Allocation{got}, onDisk); diff != "" || err != nil {
		t.Errorf("on disk, %v (-want +got):\n%s", err, diff)
	}
}

func TestMissingDevicesOfARecoveredPodMayBeHeldByOthers(t *testing.T) {
	w := newFixture()
	w.run(wants("a", map[types.ResourceName]int64{cards0: 1}))
	r := reconciled(t, w)
	grant(t, r, wants("b", map[types.ResourceName]int64{cards1: 1}))
	w.active["b"] = true

	claim := wants("a", map[types.ResourceName]int64{cards0: 1})
	claim.PodInfo.RunningContainers["second"] = container(map[types.ResourceName]int64{cards1: 1})
	if _, err := r.grant(&claim, capacity); err == nil || !strings.Contains(err.Error(), "default/pod-b") {
		t.Errorf("got %v, want a conflict with pod b", err)
	}
	if got, _, err := r.Granted(t.Context(), "a"); err != nil || !got.Partial || got.Holds()[cards0] != 1 {
		t.Errorf("pod a has %v, %v; want what it had", got, err)
	}
}

// What Carry writes is what a later process of the node reads, and the file of the key is what a
// later release reads.
func TestSignedPartsAndKeyMatchTheirGoldenFiles(t *testing.T) {
	golden := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	path := filepath.Join(t.TempDir(), "grants")
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), keyName), golden("signed.grant-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newFixture()
	r := openAt(t, w, path)
	a := wants("a", map[types.ResourceName]int64{cards0: 1, memory0: 7})
	if _, err := r.EncodePart(a, "main"); err == nil {
		t.Error("something is signed before the key was read")
	}
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	encoded, err := r.EncodePart(a, "main")
	if diff := cmp.Diff(strings.TrimSpace(string(golden("signed.carried"))), encoded); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if encoded != w.encoded(a, "main") {
		t.Error("the key in the golden file is not the fixture's")
	}
	again := newNodeKey(t.TempDir(), "").file
	if err := again.Save(w.key.keyContent); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(again.Path)
	if diff := cmp.Diff(string(golden("signed.grant-key")), string(written)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestEachNodeMakesAKeyThatOnlyRootReadsAndKeepsIt(t *testing.T) {
	directory := t.TempDir()
	first, second := newNodeKey(directory, "n"), newNodeKey(directory, "n")
	for _, key := range []*nodeKey{first, second} {
		if err := key.load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Key, second.Key) || !first.Since.Equal(second.Since) || !first.saved {
		t.Error("the second process has another key")
	}
	if info, err := os.Stat(first.file.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	elsewhere := newNodeKey(t.TempDir(), "n")
	if err := elsewhere.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first.Key, elsewhere.Key) {
		t.Error("two nodes have the same key")
	}
}

func TestAKeyThatCannotBeUsedOrWrittenIsMadeAgainAndTheCheckpointStillCounts(t *testing.T) {
	for name, harm := range map[string]func(key string) error{
		"lost":      os.Remove,
		"cut off":   func(key string) error { return os.Truncate(key, 100) },
		"too short": func(key string) error { return writeKey(key, `{"key":"AAAA","since":"2026-01-01T00:00:00Z"}`) },
		"no JSON":   func(key string) error { return writeKey(key, `[]`) },
	} {
		w, r := withPodA(t)
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		path := r.key.file.Path
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := harm(path); err != nil {
			t.Fatal(err)
		}
		options := w.options(t, r.file.Path)
		if name == "lost" {
			if err := os.Remove(path); err != nil { // options has made one again
				t.Fatal(err)
			}
		}
		r = New(options)
		t.Cleanup(func() { r.Close() })
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(r.key.Key, w.key.Key) || !r.Has("a") || len(w.findings) > 0 {
			t.Errorf("%s: has pod a %v, found %v", name, r.Has("a"), w.findings)
		}
		key := newNodeKey(filepath.Dir(path), "node-1")
		if err := key.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(key.Key, r.key.Key) {
			t.Errorf("%s: the new key is not on disk", name)
		}
	}
}

// writeKey makes body the body of a key's file.
func writeKey(path, body string) error {
	file := newNodeKey(filepath.Dir(path), "").file
	return file.Save(rawJSON(body))
}

func FuzzKey(f *testing.F) {
	f.Add([]byte(`{"key":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=","since":"2026-03-04T04:06:07Z"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if key, err := decodeKey(body); err == nil && len(key.Key) != keyBytes {
			t.Errorf("a key of %d bytes", len(key.Key))
		}
	})
}

// Nothing but what the key has signed for the subject verifies, and nothing makes verify panic.
func FuzzVerify(f *testing.F) {
	w := newFixture()
	pod := wants("a", map[types.ResourceName]int64{cards0: 1, memory0: 7})
	owner := subject{"a", pod.Namespace, pod.Name, "main"}
	signed := w.encoded(pod, "main")
	f.Add(signed)
	f.Add(w.encoded(wants("b", map[types.ResourceName]int64{cards0: 1}), "main"))
	f.Add("v1..{}")
	f.Add(`{"podname":"pod-a"}`)
	_, part, _ := strings.Cut(strings.TrimPrefix(signed, encodedVersion), ".")
	f.Fuzz(func(t *testing.T, encoded string) {
		if _, _, err := w.key.verify(owner, encoded); err == nil && !strings.HasSuffix(encoded, "."+part) {
			t.Errorf("%q verifies", encoded)
		}
	})
}

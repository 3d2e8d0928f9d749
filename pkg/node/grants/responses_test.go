// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const nic = "example.com/nic"

// put caches a response for the container main of pod a.
func put(c *Checkpoint, response string) (string, error) {
	cached, err := c.Responses().Put("a", "main", nic, []byte(response))
	return string(cached), err
}

// withPodA returns a checkpoint that has pod a, which lives.
func withPodA(t *testing.T) (*fixture, *Checkpoint) {
	t.Helper()
	f := newFixture()
	c, _ := open(t, f)
	a := wants("a", map[types.ResourceName]int64{cards0: 1})
	grant(t, c, a)
	f.run(a)
	return f, c
}

// reopen returns the checkpoint as the next process has it when it has compared it with the
// runtime.
func reopen(t *testing.T, f *fixture, c *Checkpoint) *Checkpoint {
	t.Helper()
	c = restart(t, f, c)
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheFirstResponseIsCachedOverRestarts(t *testing.T) {
	f, c := withPodA(t)
	for _, later := range []string{"first", "second", "third"} {
		if cached, err := put(c, later); cached != "first" || err != nil {
			t.Errorf("cached %q, %v when %q comes; want what came first", cached, err, later)
		}
		c = reopen(t, f, c)
	}
	if cached, ok := c.Responses().Get("a", "main", nic); !ok || string(cached) != "first" {
		t.Errorf("cached %q, %v", cached, ok)
	}
}

func TestResponsesAreKeptApart(t *testing.T) {
	f, c := withPodA(t)
	want := responses{"main": {nic: []byte{0, 0xff}, "example.com/gpu": {}}, "side": {nic: []byte("other")}}
	for container, byKey := range want {
		for key, response := range byKey {
			if _, err := c.Responses().Put("a", container, key, response); err != nil {
				t.Fatal(err)
			}
		}
	}
	c = reopen(t, f, c)
	if diff := cmp.Diff(map[string]responses{"a": want}, c.Responses().current()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, missing := range [][3]string{{"b", "main", nic}, {"a", "init", nic}, {"a", "side", "example.com/gpu"}} {
		if cached, ok := c.Responses().Get(missing[0], missing[1], missing[2]); ok {
			t.Errorf("%v has %q", missing, cached)
		}
	}
}

func TestCachingAResponseDoesNotWriteTheCheckpoint(t *testing.T) {
	_, c := withPodA(t)
	before, err := os.Stat(c.file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(c, "response"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(c.file.Path); err != nil || !os.SameFile(before, after) ||
		!after.ModTime().Equal(before.ModTime()) {
		t.Errorf("before %v, after %v, %v", before, after, err)
	}
}

func TestOneOfManyResponsesThatComeAtOnceIsCached(t *testing.T) {
	_, c := withPodA(t)
	var group sync.WaitGroup
	cached := make([]string, 8)
	for i := range cached {
		group.Go(func() {
			var err error
			if cached[i], err = put(c, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, response := range cached {
		if response != cached[0] {
			t.Errorf("the callers have different responses: %q", cached)
		}
	}
}

func TestAResponseGoesWithItsPod(t *testing.T) {
	f, c := withPodA(t)
	if _, err := put(c, "response"); err != nil {
		t.Fatal(err)
	}
	b := wants("b", map[types.ResourceName]int64{cards1: 1})
	grant(t, c, b)
	f.run(b)
	f.stop("a", false)
	if err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cached, ok := c.Responses().Get("a", "main", nic); ok {
		t.Errorf("cached %q", cached)
	}
	if _, err := put(c, "late"); !errors.Is(err, ErrNotGranted) {
		t.Errorf("a response for a pod that is gone: %v, want ErrNotGranted", err)
	}
	if _, err := c.Responses().Put("b", "main", nic, []byte("response")); err != nil {
		t.Fatal(err)
	}
	want := map[string]responses{"b": {"main": {nic: []byte("response")}}}
	if diff := cmp.Diff(want, c.Responses().current()); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestAResponseIsDroppedForItsContainerAlone(t *testing.T) {
	f, c := withPodA(t)
	for _, container := range []string{"main", "side"} {
		if _, err := c.Responses().Put("a", container, nic, []byte(container)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		pod, container string
		want           bool
	}{{"a", "main", true}, {"a", "main", false}, {"a", "init", false}, {"b", "main", false}} {
		if dropped, err := c.Responses().Drop(test.pod, test.container); dropped != test.want || err != nil {
			t.Errorf(
				"dropped the responses for pod %s, container %s: %v, %v; want %v",
				test.pod,
				test.container,
				dropped,
				err,
				test.want,
			)
		}
	}
	c = reopen(t, f, c)
	want := map[string]responses{"a": {"side": {nic: []byte("side")}}}
	if diff := cmp.Diff(want, c.Responses().current()); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if cached, err := put(c, "better"); cached != "better" || err != nil {
		t.Errorf("cached %q, %v", cached, err)
	}
}

func TestAResponseThatCannotBeDroppedIsStillThere(t *testing.T) {
	_, c := withPodA(t)
	if _, err := put(c, "response"); err != nil {
		t.Fatal(err)
	}
	takeAway(t, c)
	if _, err := c.Responses().Drop("a", "main"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if cached, ok := c.Responses().Get("a", "main", nic); !ok || string(cached) != "response" {
		t.Errorf("cached %q, %v", cached, ok)
	}
}

func TestAResponseThatIsTooLargeOrCannotBeWrittenIsNotCached(t *testing.T) {
	_, c := withPodA(t)
	if _, err := c.Responses().Put("a", "main", nic, bytes.Repeat([]byte{1}, maxResponse+1)); err == nil {
		t.Error("cached a response that is too large")
	}
	disk := takeAway(t, c)
	if cached, err := put(c, "response"); cached != "" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %q, %v", cached, err)
	}
	if cached, ok := c.Responses().Get("a", "main", nic); ok {
		t.Errorf("cached %q", cached)
	}
	disk.bringBack(t)
	if cached, err := put(c, "response"); cached != "response" || err != nil {
		t.Errorf("when it can be written: %q, %v", cached, err)
	}
}

func TestACorruptFileOfResponsesCostsTheResponsesAlone(t *testing.T) {
	f, c := withPodA(t)
	if _, err := put(c, "response"); err != nil {
		t.Fatal(err)
	}
	path := c.Responses().file.Path
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	c = reopen(t, f, c)
	if cached, ok := c.Responses().Get("a", "main", nic); ok || !c.Has("a") || c.WasCorrupt() {
		t.Errorf("cached %q; the checkpoint: %v, corrupt: %v", cached, c.List(), c.WasCorrupt())
	}
	if kept, err := filepath.Glob(path + ".corrupt-*"); err != nil || len(kept) != 1 {
		t.Errorf("kept: %v, %v", kept, err)
	}
	if cached, err := put(c, "new"); cached != "new" || err != nil {
		t.Errorf("cached %q, %v", cached, err)
	}
}

// An earlier release wrote the responses into the checkpoint. They are moved, in this boot of the
// machine, and count more than those that this release cached before the earlier one ran again.
func TestResponsesInTheCheckpointOfAnEarlierReleaseAreMoved(t *testing.T) {
	f := newFixture()
	c, path := open(t, f)
	for _, g := range []Allocation{wants("a", nil), wants("b", nil)} {
		grant(t, c, g)
		f.run(g)
	}
	for _, pod := range []string{"a", "b"} {
		if _, err := c.Responses().Put(pod, "main", nic, []byte("before the downgrade")); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile("testdata/with-answers.grants")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, process := range []string{"the first", "the second"} {
		c = reopen(t, f, c)
		want := map[string]responses{
			"a": {"main": {nic: []byte("answer"), "example.com/gpu": {0, 0xff}}},
			"b": {"main": {nic: []byte("before the downgrade")}}, // that in the checkpoint is of another boot
		}
		if diff := cmp.Diff(want, c.Responses().current()); diff != "" {
			t.Errorf("%s process (-want +got):\n%s", process, diff)
		}
		if raw, err := os.ReadFile(path); err != nil || bytes.Contains(raw, []byte("answers")) {
			t.Errorf("%s process leaves the responses in the checkpoint: %s, %v", process, raw, err)
		}
		if list, err := Read(path); err != nil || len(list) != 2 || list[0].InitOrder[0] != "first" {
			t.Errorf("%s process: checkpoint %v, %v", process, list, err)
		}
	}
}

func FuzzResponses(f *testing.F) {
	f.Add([]byte(`{"boot":"first boot","pods":{"a":{"main":{"example.com/nic":"AP8="}}}}`))
	f.Add([]byte(`{"boot":"first boot","pods":{"a":null}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		directory := t.TempDir()
		file := statefile.File{Path: filepath.Join(directory, responsesName), Kind: responsesName}
		if err := file.Save(rawJSON(body)); err != nil {
			return
		}
		c := newResponseCache(directory, "first boot", everyPod{})
		if err := c.load(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if cached, err := c.Put("a", "main", nic, []byte("new")); err != nil || cached == nil {
			t.Errorf("cached %q, %v", cached, err)
		}
	})
}

// rawJSON is JSON as it stands.
type rawJSON []byte

func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

// everyPod holds devices.
type everyPod struct{}

// Has implements holders.
func (everyPod) Has(string) bool { return true }

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// away is a directory that is not in its place, so that nothing can be written there.
type away struct{ place, now string }

// takeAway takes the directory of a checkpoint away.
func takeAway(t *testing.T, c *Checkpoint) away {
	t.Helper()
	a := away{filepath.Dir(c.file.Path), filepath.Join(t.TempDir(), "away")}
	if err := os.Rename(a.place, a.now); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a away) bringBack(t *testing.T) {
	t.Helper()
	if err := os.Rename(a.now, a.place); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsGrantedWhileTheCheckpointCannotBeWrittenAndThatHeals(t *testing.T) {
	w, r := withPodA(t)
	b := wants("b", map[types.ResourceName]int64{cards1: 1})
	disk := takeAway(t, r)
	_, err := r.Grant(t.Context(), b, capacity)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no device is granted") {
		t.Errorf("grant: %v, want the cause and what follows", err)
	}
	if r.Has("b") || !r.IsUnsaved() || r.Check() == nil {
		t.Errorf("checkpoint: %v, unsaved: %v, check: %v", r.List(), r.IsUnsaved(), r.Check())
	}
	if grant, err := r.Grant(t.Context(), wants("a", nil), capacity); err != nil || grant.Name != "pod-a" {
		t.Errorf("a pod that was granted something before does not get it again: %v, %v", grant, err)
	}

	disk.bringBack(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.IsUnsaved() || r.Check() != nil {
		t.Errorf("the disk is back, unsaved: %v, check: %v", r.IsUnsaved(), r.Check())
	}
	w.run(grant(t, r, b))
	if onDisk, err := Read(r.file.Path); err != nil || len(onDisk) != 2 {
		t.Errorf("on disk: %v, %v", onDisk, err)
	}
}

func TestRecoveredAllocationsCountWhenTheyCannotBeWritten(t *testing.T) {
	w, r := withPodA(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := wants("lost", map[types.ResourceName]int64{cards1: 1})
	w.run(lost)
	w.stop("a", false)
	disk := takeAway(t, r)
	if err := r.Reconcile(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]Allocation{recovered(lost)}, r.List()); diff != "" {
		t.Errorf("checkpoint (-want +got):\n%s", diff)
	}
	disk.bringBack(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	onDisk, err := Read(r.file.Path)
	if diff := cmp.Diff([]Allocation{recovered(lost)}, onDisk); diff != "" || err != nil {
		t.Errorf("on disk when it can be written again (-want +got), %v:\n%s", err, diff)
	}
}

func TestContainersOfPodsInTheCheckpointStartThoughNothingCanBeWrittenSinceTheStart(t *testing.T) {
	w, r := withPodA(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.run(wants("b", map[types.ResourceName]int64{cards1: 1})) // which is not on disk
	r = restart(t, w, r)
	r.runtime = listing(func() (map[string]RuntimeState, error) {
		takeAway(t, r)
		return w.Pods(t.Context())
	})
	for _, uid := range []string{"a", "b"} {
		if _, granted, err := r.Granted(t.Context(), uid); !granted || err != nil {
			t.Errorf("pod %s: granted %v, %v", uid, granted, err)
		}
	}
	if !r.IsUnsaved() {
		t.Error("it could be written; this shows nothing")
	}
}

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

// unplugged is a folder that is not where it belongs, so that nothing can be written there.
type unplugged struct{ folder, away string }

// unplug takes the folder of a record's file away.
func unplug(t *testing.T, r *Record) unplugged {
	t.Helper()
	u := unplugged{filepath.Dir(r.path), filepath.Join(t.TempDir(), "away")}
	if err := os.Rename(u.folder, u.away); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u unplugged) plugIn(t *testing.T) {
	t.Helper()
	if err := os.Rename(u.away, u.folder); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsGrantedWhileTheRecordCannotBeWrittenAndThatHeals(t *testing.T) {
	w, r := granted(t)
	b := wants("b", map[types.ResourceName]int64{cards1: 1})
	disk := unplug(t, r)
	_, err := r.Pin(t.Context(), b, has)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no device is given out") {
		t.Errorf("pin: %v, want the cause and what follows", err)
	}
	if r.Has("b") || !r.IsUnsaved() || r.Check() == nil {
		t.Errorf("on record: %v, unsaved: %v, check: %v", r.List(), r.IsUnsaved(), r.Check())
	}
	if grant, err := r.Pin(t.Context(), wants("a", nil), has); err != nil || grant.Name != "pod-a" {
		t.Errorf("a pod that was granted something before does not get it again: %v, %v", grant, err)
	}

	disk.plugIn(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.IsUnsaved() || r.Check() != nil {
		t.Errorf("the disk is back, unsaved: %v, check: %v", r.IsUnsaved(), r.Check())
	}
	w.run(pin(t, r, b))
	if onDisk, err := Read(r.path); err != nil || len(onDisk) != 2 {
		t.Errorf("on disk: %v, %v", onDisk, err)
	}
}

func TestWhatTheRuntimeSaysCountsWhenItCannotBeWritten(t *testing.T) {
	w, r := granted(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := wants("lost", map[types.ResourceName]int64{cards1: 1})
	w.run(lost)
	w.stop("a", false)
	disk := unplug(t, r)
	if err := r.Reconcile(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]Grant{lost}, r.List()); diff != "" {
		t.Errorf("on record (-want +got):\n%s", diff)
	}
	disk.plugIn(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	onDisk, err := Read(r.path)
	if diff := cmp.Diff([]Grant{lost}, onDisk); diff != "" || err != nil {
		t.Errorf("on disk when it can be written again (-want +got), %v:\n%s", err, diff)
	}
}

func TestContainersOfPodsOnRecordStartThoughNothingCanBeWrittenSinceTheStart(t *testing.T) {
	w, r := granted(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.run(wants("b", map[types.ResourceName]int64{cards1: 1})) // which is not on disk
	r = restart(t, w, r)
	r.runtime = listing(func() (map[string]Seen, error) {
		unplug(t, r)
		return w.Pods(t.Context())
	})
	for _, uid := range []string{"a", "b"} {
		if _, pinned, err := r.Pinned(t.Context(), uid); !pinned || err != nil {
			t.Errorf("pod %s: pinned %v, %v", uid, pinned, err)
		}
	}
	if !r.IsUnsaved() {
		t.Error("it could be written; this shows nothing")
	}
}

func TestWhatAKilledWriterLeftDoesNoHarm(t *testing.T) {
	for name, left := range map[string]string{"nothing yet": "", "a part": magic, "more than is needed": strings.Repeat("x", 3*block)} {
		t.Run(name, func(t *testing.T) {
			w, r := granted(t)
			if err := os.WriteFile(spare(r.path), []byte(left), 0o600); err != nil {
				t.Fatal(err)
			}
			r = restart(t, w, r)
			w.run(wants("b", map[types.ResourceName]int64{cards1: 1}))
			for range 2 { // both of the two files
				if err := r.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
				if onDisk, err := Read(r.path); err != nil || len(onDisk) != 2 {
					t.Errorf("the record: %v, %v", onDisk, err)
				}
				if err := write(r.path, r.List()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestTheFirstDecisionStays(t *testing.T) {
	w := newFixture()
	r, _ := open(t, w)
	first := wants("a", map[types.ResourceName]int64{cards0: 1})
	grant(t, r, first)
	w.run(first)
	for range 2 {
		got := grant(t, r, wants("a", map[types.ResourceName]int64{cards1: 1}))
		if diff := cmp.Diff(first.PodInfo, got.PodInfo); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// And after a restart.
		r = restart(t, w, r)
	}
}

func TestWhatCannotBeWrittenIsNotGranted(t *testing.T) {
	w := newFixture()
	path := filepath.Join(t.TempDir(), "missing", "grants")
	r := openAt(t, w, path)
	if _, err := r.Grant(t.Context(), wants("a", map[types.ResourceName]int64{cards0: 1}), capacity); err == nil {
		t.Fatal("granted without a file")
	}
	if r.Has("a") || len(r.List()) != 0 {
		t.Error("the grant that failed is on record")
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	grant(t, r, wants("b", map[types.ResourceName]int64{cards0: 1}))
}

// A file that cannot be read now, as when too many are open, is not lost: nothing is granted
// without it, and nothing written over it.
func TestAFileThatCannotBeReadNowIsNotMadeAgain(t *testing.T) {
	for _, name := range []string{"grants", keyName} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r, path := open(t, w)
			a := wants("a", map[types.ResourceName]int64{cards0: 1})
			grant(t, r, a)
			w.run(a)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(filepath.Dir(path), name)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
				t.Fatal(err)
			}
			r = openAt(t, w, path)
			b := wants("b", map[types.ResourceName]int64{cards0: 1})
			_, err = r.Grant(t.Context(), b, capacity)
			if err == nil || !strings.Contains(err.Error(), "is a directory") {
				t.Errorf("it is granted what another pod has: %v", err)
			}
			if err := errors.Join(os.Remove(file), os.WriteFile(file, before, 0o600)); err != nil {
				t.Fatal(err)
			}
			var conflict *Conflict
			if _, err := r.Grant(t.Context(), b, capacity); !errors.As(err, &conflict) {
				t.Errorf("it is granted what another pod has: %v", err)
			}
			if !r.Has("a") || r.WasCorrupt() {
				t.Error("what was granted is not known")
			}
		})
	}
}

func TestPodsWithoutDevicesDoNotWaitForTheDisk(t *testing.T) {
	r, _ := open(t, newFixture())
	grant(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	r.changing.Lock() // as while the file is written
	defer r.changing.Unlock()
	if !r.Has("a") || len(r.List()) != 1 || r.Check() != nil {
		t.Errorf("checkpoint: %v, %v", r.List(), r.Check())
	}
	if _, granted, err := r.Granted(context.Background(), "a"); !granted || err != nil {
		t.Errorf("granted: %v, %v", granted, err)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

func TestNothingIsGrantedBeforeItIsOnDisk(t *testing.T) {
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

// unknownRuntime is a runtime that lists nothing yet.
type unknownRuntime struct{}

// Pods implements Runtime.
func (unknownRuntime) Pods(ctx context.Context) (map[string]RuntimeState, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTheFileIsKnownBeforeTheRuntimeListsItsContainers(t *testing.T) {
	w := newFixture()
	r, path := open(t, w)
	grant(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	recorded := func(uid string) (granted bool, err error) {
		options := w.options(t, path)
		options.Runtime = unknownRuntime{}
		r := New(options)
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var comparing sync.WaitGroup
		defer comparing.Wait()
		defer cancel()
		comparing.Go(func() { _ = r.Reconcile(ctx) })
		<-r.Opened()
		_, granted, err = r.Recorded(uid)
		return granted, err
	}
	for uid, want := range map[string]bool{"a": true, "b": false} {
		if granted, err := recorded(uid); granted != want || err != nil {
			t.Errorf("pod %s: %v, %v, want %v", uid, granted, err, want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if granted, err := recorded("a"); err == nil {
		t.Errorf("the file is lost: %v", granted)
	}
	compared := openAt(t, w, path)
	if err := compared.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := compared.Recorded("a"); err != nil {
		t.Errorf("the file is lost, and the runtime has said what runs: %v", err)
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

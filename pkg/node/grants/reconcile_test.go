// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestNothingIsGrantedBeforeTheRuntimeIsListed(t *testing.T) {
	w := newFixture()
	w.err = errors.New("runtime away")
	r, _ := open(t, w)
	g := wants("a", map[types.ResourceName]int64{cards0: 1})
	if _, err := r.Grant(t.Context(), g, capacity); !errors.Is(err, w.err) {
		t.Fatalf("got %v, want %v", err, w.err)
	}
	if err := r.Check(); err == nil {
		t.Error("the checkpoint says it is complete")
	}
	w.err = nil
	grant(t, r, g)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

func TestALostCheckpointComesBackFromTheContainers(t *testing.T) {
	w := newFixture()
	r, path := open(t, w)
	running, over := wants(
		"a",
		map[types.ResourceName]int64{cards0: 1},
	), wants(
		"b",
		map[types.ResourceName]int64{cards1: 1},
	)
	grant(t, r, running)
	grant(t, r, over)
	w.run(running)
	w.run(over)
	w.stop("b", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r = restart(t, w, r)
	if _, err := r.Grant(t.Context(), wants("c", map[types.ResourceName]int64{cards0: 1}), capacity); err == nil {
		t.Error("the device of a pod that runs was granted again")
	}
	grant(t, r, wants("d", map[types.ResourceName]int64{cards1: 1}))
}

func TestACorruptCheckpointIsKeptAndMadeAgain(t *testing.T) {
	w := newFixture()
	r, path := open(t, w)
	g := wants("a", map[types.ResourceName]int64{cards0: 1})
	grant(t, r, g)
	w.run(g)
	if err := os.WriteFile(path, []byte("kubedevice-grants v1 sha256:00\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = restart(t, w, r)
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !r.WasCorrupt() {
		t.Error("the corruption went unnoticed")
	}
	if kept, err := filepath.Glob(path + ".corrupt-*"); err != nil || len(kept) != 1 {
		t.Errorf("kept: %v, %v", kept, err)
	}
	onDisk, err := Read(path)
	if err != nil || len(onDisk) != 1 || onDisk[0].PodUID != "a" {
		t.Errorf("made again: %v, %v", onDisk, err)
	}
}

func TestAGrantMadeWhileTheRuntimeListsIsKept(t *testing.T) {
	w := newFixture()
	r, _ := open(t, w)
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.runtime = listing(func() (map[string]RuntimeState, error) {
		grant(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
		return nil, nil
	})
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !r.Has("a") {
		t.Error("the grant is gone")
	}
}

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

func TestNothingIsGrantedBeforeTheRuntimeWasAsked(t *testing.T) {
	w := newWorld()
	w.err = errors.New("runtime away")
	r, _ := open(t, w)
	g := wants("a", map[types.ResourceName]int64{cards0: 1})
	if _, err := r.Pin(context.Background(), g, has); !errors.Is(err, w.err) {
		t.Fatalf("got %v, want %v", err, w.err)
	}
	if err := r.Check(); err == nil {
		t.Error("the record says it is complete")
	}
	w.err = nil
	pin(t, r, g)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

func TestALostRecordComesBackFromTheContainers(t *testing.T) {
	w := newWorld()
	r, path := open(t, w)
	running, over := wants("a", map[types.ResourceName]int64{cards0: 1}), wants("b", map[types.ResourceName]int64{cards1: 1})
	pin(t, r, running)
	pin(t, r, over)
	w.run(running)
	w.run(over)
	w.stop("b", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r = restart(t, w, r)
	if _, err := r.Pin(context.Background(), wants("c", map[types.ResourceName]int64{cards0: 1}), has); err == nil {
		t.Error("the device of a pod that runs was granted again")
	}
	pin(t, r, wants("d", map[types.ResourceName]int64{cards1: 1}))
}

func TestADamagedRecordIsSetAsideAndMadeAnew(t *testing.T) {
	w := newWorld()
	r, path := open(t, w)
	g := wants("a", map[types.ResourceName]int64{cards0: 1})
	pin(t, r, g)
	w.run(g)
	if err := os.WriteFile(path, []byte("kubedevice-grants v1 sha256:00\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = restart(t, w, r)
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !r.WasDamaged() {
		t.Error("the damage went unnoticed")
	}
	if aside, err := filepath.Glob(path + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	onDisk, err := Read(path)
	if err != nil || len(onDisk) != 1 || onDisk[0].PodUID != "a" {
		t.Errorf("made anew: %v, %v", onDisk, err)
	}
}

func TestAGrantMadeWhileTheRuntimeListsIsKept(t *testing.T) {
	w := newWorld()
	r, _ := open(t, w)
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.runtime = listing(func() (map[string]Seen, error) {
		pin(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
		return nil, nil
	})
	if err := r.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !r.Has("a") {
		t.Error("the grant is gone")
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestWhoHoldsTheRecordKeepsOthersFromItAndIsRefusedWhileTheyHaveIt(t *testing.T) {
	w := newWorld()
	r, path := open(t, w)
	pin(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	if _, err := Hold(path); !errors.Is(err, ErrInUse) {
		t.Errorf("while a process has the record: %v, want ErrInUse", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	held, err := Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*lockRetry)
	defer cancel()
	if err := openAt(t, w, path).Reconcile(ctx); err == nil || !strings.Contains(err.Error(), "another kubecri") {
		t.Errorf("while the record is held: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(filepath.Join(t.TempDir(), "missing", "grants")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

func TestTwoProcessesNeverHaveTheRecordAtOnce(t *testing.T) {
	w := newWorld()
	old, path := open(t, w)
	pin(t, old, wants("a", map[types.ResourceName]int64{cards0: 1}))
	next := openAt(t, w, path)
	ctx, cancel := context.WithTimeout(context.Background(), 2*lockRetry)
	defer cancel()
	b := wants("b", map[types.ResourceName]int64{cards1: 1})
	if _, err := next.Pin(ctx, b, has); err == nil || !strings.Contains(err.Error(), "another kubecri") {
		t.Errorf("while the old process lives: %v", err)
	}
	granted := make(chan error, 1)
	go func() {
		_, err := next.Pin(context.Background(), b, has)
		granted <- err
	}()
	pin(t, old, wants("c", nil))
	w.run(wants("a", map[types.ResourceName]int64{cards0: 1}))
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("when the old process has ended: %v", err)
	}
	if !next.Has("a") || !next.Has("b") {
		t.Errorf("on record: %v", next.List())
	}
}

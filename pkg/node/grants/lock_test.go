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

func TestTheCheckpointIsLockedByOneProcess(t *testing.T) {
	w := newFixture()
	r, path := open(t, w)
	grant(t, r, wants("a", map[types.ResourceName]int64{cards0: 1}))
	if _, err := Hold(path); !errors.Is(err, ErrInUse) {
		t.Errorf("while a process has the checkpoint: %v, want ErrInUse", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	held, err := Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*lockRetry)
	defer cancel()
	if err := openAt(t, w, path).Reconcile(ctx); err == nil || !strings.Contains(err.Error(), "another kubecri") {
		t.Errorf("while the checkpoint is held: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(filepath.Join(t.TempDir(), "missing", "grants")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

func TestTwoProcessesNeverHaveTheCheckpointAtOnce(t *testing.T) {
	w := newFixture()
	old, path := open(t, w)
	grant(t, old, wants("a", map[types.ResourceName]int64{cards0: 1}))
	next := openAt(t, w, path)
	ctx, cancel := context.WithTimeout(context.Background(), 10*lockRetry)
	defer cancel()
	b := wants("b", map[types.ResourceName]int64{cards1: 1})
	if _, err := next.Grant(ctx, b, capacity); err == nil || !strings.Contains(err.Error(), "another kubecri") {
		t.Errorf("while the old process lives: %v", err)
	}
	granted := make(chan error, 1)
	go func() {
		_, err := next.Grant(context.Background(), b, capacity)
		granted <- err
	}()
	grant(t, old, wants("c", nil))
	w.run(wants("a", map[types.ResourceName]int64{cards0: 1}))
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("when the old process has ended: %v", err)
	}
	if !next.Has("a") || !next.Has("b") {
		t.Errorf("checkpoint: %v", next.List())
	}
}

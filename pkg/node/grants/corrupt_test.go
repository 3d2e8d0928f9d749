// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// corruptions is how many corrupt files a checkpoint is opened with.
const corruptions = 1000

// A pod runs with a device, another is over, and the file that says so is corrupt in a way of its
// own each time: bits flipped, cut off, both. After every corruption, the checkpoint has exactly
// what the runtime has, and no other pod gets the device.
func TestPropertyACorruptFileMakesNoWrongGrant(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	w := newFixture()
	original, path := open(t, w)
	running, over := wants(
		"a",
		map[types.ResourceName]int64{cards0: 1, memory0: 40},
	), wants(
		"b",
		map[types.ResourceName]int64{cards1: 1},
	)
	grant(t, original, running)
	grant(t, original, over)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.run(running)
	w.run(over)
	w.stop("b", false)

	path = filepath.Join(t.TempDir(), "grants")
	for i := range corruptions {
		corrupt := slices.Clone(raw)
		if i%3 > 0 {
			for range 1 + random.IntN(3) {
				corrupt[random.IntN(len(corrupt))] ^= 1 << random.IntN(8)
			}
		}
		if i%3 != 1 {
			corrupt = corrupt[:random.IntN(len(corrupt))]
		}
		if slices.Equal(corrupt, raw) {
			continue // a bit flipped twice
		}
		if err := os.WriteFile(path, corrupt, 0o600); err != nil {
			t.Fatal(err)
		}
		r := New(w.options(t, path))
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !r.WasCorrupt() {
			t.Fatalf("corruption went unnoticed: %q", corrupt)
		}
		if diff := cmp.Diff([]Allocation{recovered(running)}, r.List()); diff != "" {
			t.Fatalf("checkpoint (-want +got), from %q:\n%s", corrupt, diff)
		}
		var conflict *Conflict
		if _, err := r.Grant(t.Context(), wants("c", map[types.ResourceName]int64{cards0: 1}), capacity); !errors.As(
			err,
			&conflict,
		) {
			t.Fatalf("the device of a pod that runs is granted again (%v), from %q", err, corrupt)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := filepath.Glob(path + ".corrupt-*"); err != nil || len(kept) < corruptions*9/10 {
		t.Errorf("%d of %d corrupt files were kept: %v", len(kept), corruptions, err)
	}
}

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

// damages is how many damaged files a record is opened with.
const damages = 1000

// A pod runs with a device, another is over, and the file that says so is damaged in a way of its own each time: bits
// flipped, cut off, both. Whatever the damage, the record has exactly what the runtime has, and the device is nobody else's.
func TestPropertyADamagedFileMakesNoWrongGrant(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	w := newWorld()
	original, path := open(t, w)
	running, over := wants("a", map[types.ResourceName]int64{cards0: 1, memory0: 40}), wants("b", map[types.ResourceName]int64{cards1: 1})
	pin(t, original, running)
	pin(t, original, over)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.run(running)
	w.run(over)
	w.stop("b", false)

	path = filepath.Join(t.TempDir(), "grants")
	for i := range damages {
		damaged := slices.Clone(raw)
		if i%3 > 0 {
			for range 1 + random.IntN(3) {
				damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
			}
		}
		if i%3 != 1 {
			damaged = damaged[:random.IntN(len(damaged))]
		}
		if slices.Equal(damaged, raw) {
			continue // a bit flipped twice
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		r := New(path, w.boot, w, w.isActive)
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !r.WasDamaged() {
			t.Fatalf("damage went unnoticed: %q", damaged)
		}
		if diff := cmp.Diff([]Grant{running}, r.List()); diff != "" {
			t.Fatalf("on record (-want +got), from %q:\n%s", damaged, diff)
		}
		var conflict *Conflict
		if _, err := r.Pin(t.Context(), wants("c", map[types.ResourceName]int64{cards0: 1}), has); !errors.As(err, &conflict) {
			t.Fatalf("the device of a pod that runs is granted again (%v), from %q", err, damaged)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if aside, err := filepath.Glob(path + ".damaged-*"); err != nil || len(aside) < damages*9/10 {
		t.Errorf("%d of %d damaged files were set aside: %v", len(aside), damages, err)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func sample(t testing.TB) (grants []Grant, raw []byte) {
	t.Helper()
	a, b := wants("a", map[types.ResourceName]int64{cards0: 1, memory0: 7}), wants("b", map[types.ResourceName]int64{cards1: 1})
	a.InitOrder = []string{"first"}
	a.Since, b.Since = time.Unix(1700000000, 5).UTC(), time.Unix(1700000001, 0).UTC()
	grants = []Grant{a, b}
	raw, err := encode(grants)
	if err != nil {
		t.Fatal(err)
	}
	return grants, raw
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	want, _ := sample(t)
	path := filepath.Join(t.TempDir(), "grants")
	if err := write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestNoRecordIsNotADamagedOne(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "grants"))
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

func TestEveryFlippedBitAndEveryTruncationIsNoticed(t *testing.T) {
	_, raw := sample(t)
	for i := range raw {
		for bit := range 8 {
			damaged := append([]byte(nil), raw...)
			damaged[i] ^= 1 << bit
			if _, err := decode(damaged); err == nil {
				t.Fatalf("bit %d of byte %d flipped: read as if nothing had happened", bit, i)
			}
		}
		if _, err := decode(raw[:i]); err == nil {
			t.Fatalf("cut after %d bytes: read as if nothing had happened", i)
		}
	}
}

func FuzzDecode(f *testing.F) {
	_, raw := sample(f)
	f.Add(raw)
	f.Add([]byte("kubedevice-grants v1 sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		grants, err := decode(raw)
		if err != nil {
			return
		}
		again, err := encode(grants)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(again); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

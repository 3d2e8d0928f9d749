// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func sample() []Allocation {
	a := wants("a", map[types.ResourceName]int64{cards0: 1, memory0: 7})
	b := wants("b", map[types.ResourceName]int64{cards1: 1})
	a.InitOrder = []string{"first"}
	a.Since, b.Since = time.Unix(1700000000, 5).UTC(), time.Unix(1700000001, 0).UTC()
	return []Allocation{a, b}
}

// written returns the checkpoint of the allocations.
func written(t testing.TB, list []Allocation) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grants")
	if err := fileAt(path).Save(content{list}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestACheckpointIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grants")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, statefile.ErrCorrupt) {
		t.Errorf("no checkpoint: %v", err)
	}
	want := sample()
	if err := os.WriteFile(path, written(t, want), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func FuzzDecode(f *testing.F) {
	_, body, _ := bytes.Cut(written(f, sample()), []byte("\n"))
	f.Add(body)
	f.Add([]byte(`{"grants":[{"podUID":"a","decision":{}},{"podUID":"a","decision":{}}]}`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := decode(body)
		if err != nil {
			return
		}
		_, again, _ := bytes.Cut(written(t, list), []byte("\n"))
		if _, err := decode(again); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzAnyFileIsRefusedWithoutHarm reads damaged beginnings of a real program: none of them is a
// plugin.
func FuzzAnyFileIsRefusedWithoutHarm(f *testing.F) {
	program, err := os.ReadFile(self)
	if err != nil {
		f.Fatal(err)
	}
	for _, size := range []int{0, 4, 16, 63, 64, 1000, 5000} {
		f.Add(program[:size])
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "any.so")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := inspect(file)
		if refused := new(refusal); !errors.As(err, &refused) || refused.Cause == "" || refused.Next == "" {
			t.Errorf("inspect = %v, want a refusal", err)
		}
	})
}

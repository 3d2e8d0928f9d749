// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// osTree is the real file system.
type osTree struct{}

func (osTree) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(path) }

func (osTree) Readlink(path string) (string, error) { return os.Readlink(path) }

func (osTree) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// Wherever links lead, a path is resolved as the kernel does it, or not at all; and a link that is
// not declared is never followed.
func FuzzResolving(f *testing.F) {
	for _, target := range []string{"b", "./b/", "../a/b", "/", "..", "../../..", "c", "missing", "b/x", "", "loop"} {
		f.Add(target, "a/link")
		f.Add(target, "a/link/b")
		f.Add(target, "a/b")
	}
	f.Fuzz(func(t *testing.T, target, path string) {
		root, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, directory := range []string{"a/b", "c"} {
			if err := os.MkdirAll(filepath.Join(root, directory), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		link := filepath.Join(root, "a", "link")
		if os.Symlink(target, link) != nil || os.Symlink("loop", filepath.Join(root, "a", "loop")) != nil {
			return // no file system has such a link
		}
		full := root + "/" + path
		want, kernel := filepath.EvalSymlinks(full)

		got, _, err := resolve(osTree{}, full, func(string) bool { return true })
		if err == nil && (kernel != nil || got != want) {
			t.Errorf("%q, with a link to %q: resolved to %q; the kernel says %q, %v", path, target, got, want, kernel)
		}
		if err != nil && kernel == nil && checkPath(full) == nil && want != "/" {
			t.Errorf("%q, with a link to %q: %v; the kernel says %q", path, target, err, want)
		}

		followed := false
		got, _, err = resolve(osTree{}, full, func(l string) bool {
			followed = followed || strings.HasPrefix(l, link)
			return false
		})
		if err == nil && (followed || got != full) {
			t.Errorf("%q, with an undeclared link to %q: resolved to %q", path, target, got)
		}
	})
}

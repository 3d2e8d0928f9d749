// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// stamp returns a digest of everything that a step's outputs depend on.
func (b *builder) stamp(s step) (string, error) {
	digest := sha256.New()
	fmt.Fprintf(digest, "%s %s %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, input := range slices.Concat(b.recipes, s.inputs) {
		if err := addTree(digest, b.source, input); err != nil {
			return "", fmt.Errorf("read its inputs: %w", err)
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// addTree adds the names and contents of a file, or of all files of a directory, to a digest.
func addTree(digest hash.Hash, root, path string) error {
	return filepath.WalkDir(filepath.Join(root, path), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(digest, "%q %x\n", name, sha256.Sum256(content))
		return err
	})
}

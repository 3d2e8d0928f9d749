// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// replace writes a file with mode 0600, all or nothing.
func replace(path string, write func(io.Writer) error) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write %s: there is something that is not a file: name another one with -o", path)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	err = write(temporary)
	if err == nil {
		err = temporary.Sync()
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// archive writes a compressed tar of the contents, below one directory, with the index first.
func archive(ctx context.Context, to io.Writer, c *contents, options Options) error {
	compressed := gzip.NewWriter(to)
	files := tar.NewWriter(compressed)
	all := append([]part{{name: "index.txt", content: []byte(index(c, options))}}, c.parts...)
	for _, file := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: Name(options.Now) + "/" + file.name, Mode: 0o600,
			Size: int64(len(file.content)), ModTime: options.Now,
		}
		if err := files.WriteHeader(header); err != nil {
			return err
		}
		if _, err := files.Write(file.content); err != nil {
			return err
		}
	}
	return errors.Join(files.Close(), compressed.Close(), ctx.Err())
}

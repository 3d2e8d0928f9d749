// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// member is a regular file of an archive or of a package.
type member struct {
	// path is relative to the archive's root, without a leading slash.
	path string
	mode int64
	// source is a file of this machine with the content; where it is empty, content has it.
	source  string
	content []byte
}

// open returns the content and its size.
func (m member) open() (io.ReadCloser, int64, error) {
	if m.source == "" {
		return io.NopCloser(bytes.NewReader(m.content)), int64(len(m.content)), nil
	}
	file, err := os.Open(m.source)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// directory returns the regular files below a directory, under a prefix. All are root's; a program
// may be executed.
func directory(dir, prefix string) ([]member, error) {
	var members []member
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file", file)
		}
		relative, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		members = append(members, member{path: path.Join(prefix, filepath.ToSlash(relative)), mode: mode, source: file})
		return nil
	})
	return members, err
}

// writeTar writes the members, sorted, all of one time and of root. The same members make the same
// bytes.
func writeTar(w io.Writer, members []member, modified time.Time) error {
	sorted := slices.SortedFunc(slices.Values(members), func(a, b member) int { return cmp.Compare(a.path, b.path) })
	archive := tar.NewWriter(w)
	for _, m := range sorted {
		if err := m.writeTo(archive, modified); err != nil {
			return fmt.Errorf("write %s: %w", m.path, err)
		}
	}
	return archive.Close()
}

func (m member) writeTo(archive *tar.Writer, modified time.Time) error {
	content, size, err := m.open()
	if err != nil {
		return err
	}
	defer content.Close()
	if err := archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: m.path, Mode: m.mode, Size: size, ModTime: modified, Format: tar.FormatPAX,
	}); err != nil {
		return err
	}
	_, err = io.Copy(archive, content)
	return err
}

// writeTarGz writes the members as a compressed archive.
func writeTarGz(w io.Writer, members []member, modified time.Time) error {
	compressed := gzip.NewWriter(w) // its header has neither name nor time
	return errors.Join(writeTar(compressed, members, modified), compressed.Close())
}

// readTarGz returns the regular files of a compressed archive.
func readTarGz(file string) ([]member, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close() //nolint:errcheck // opened for reading
	compressed, err := gzip.NewReader(opened)
	if err != nil {
		return nil, err
	}
	return readTar(compressed)
}

// readTar returns the regular files of an archive.
func readTar(r io.Reader) ([]member, error) {
	var members []member
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return members, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		members = append(members, member{path: path.Clean("/" + header.Name)[1:], mode: header.Mode, content: content})
	}
}

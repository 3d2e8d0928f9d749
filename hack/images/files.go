// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// files are the content of a layer, by their path relative to the root, without a leading slash.
type files map[string]file

// file is a regular file, a directory or a link.
type file struct {
	// header has kind, mode, owner and the target of a link.
	header tar.Header
	// content is that of a regular file, nil where it is in source.
	content []byte
	// source is a file of this machine with the content.
	source string
}

// add adds a file of root's.
func (f files) add(path string, mode int64, content []byte) {
	f[path] = file{header: tar.Header{Typeflag: tar.TypeReg, Mode: mode}, content: content}
}

// addSource adds a file of root's with the content of a file of this machine.
func (f files) addSource(path string, mode int64, source string) {
	f[path] = file{header: tar.Header{Typeflag: tar.TypeReg, Mode: mode}, source: source}
}

// addTar adds what an archive has, owners and modes included, but for paths that are left out.
func (f files) addTar(archive *tar.Reader, leftOut func(path string) bool) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean("/" + header.Name)[1:]
		if name == "" || leftOut(name) {
			continue
		}
		entry := file{header: tar.Header{
			Typeflag: header.Typeflag, Mode: header.Mode, Uid: header.Uid, Gid: header.Gid, Linkname: header.Linkname,
		}}
		switch header.Typeflag {
		case tar.TypeReg:
			if entry.content, err = io.ReadAll(archive); err != nil {
				return err
			}
		case tar.TypeDir, tar.TypeSymlink:
		default:
			return fmt.Errorf("%s is of the kind %q, which is not expected", header.Name, header.Typeflag)
		}
		f[name] = entry
	}
}

// sorted returns all paths, parents before children.
func (f files) sorted() []string { return slices.Sorted(maps.Keys(f)) }

// write writes the files as an archive, sorted, all of one time. Directories that are missing are
// root's. The same files make the same bytes.
func (f files) write(w io.Writer, modified time.Time) error {
	all := maps.Clone(f)
	for name := range f {
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			if _, ok := all[parent]; !ok {
				all[parent] = file{header: tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}}
			}
		}
	}
	archive := tar.NewWriter(w)
	for _, name := range all.sorted() {
		if err := all[name].write(archive, name, modified); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return archive.Close()
}

func (f file) write(archive *tar.Writer, name string, modified time.Time) error {
	header := f.header
	header.Name, header.ModTime, header.Size = name, modified, int64(len(f.content))
	if header.Typeflag == tar.TypeDir {
		header.Name += "/"
	}
	content := io.Reader(bytes.NewReader(f.content))
	if f.source != "" {
		source, err := os.Open(f.source)
		if err != nil {
			return err
		}
		defer source.Close() //nolint:errcheck // opened for reading
		info, err := source.Stat()
		if err != nil {
			return err
		}
		header.Size, content = info.Size(), source
	}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

// layer is a layer of images.
type layer struct {
	v1.Layer
	// title is what it has, in the history of images.
	title string
}

// layer returns the files as a layer, which is compressed once, for all images.
func (f files) layer(title string, modified time.Time) (layer, error) {
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(f.write(writer, modified)) }()
		return reader, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	return layer{made, title}, err
}

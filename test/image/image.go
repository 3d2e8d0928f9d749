// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image writes container images for a test cluster, which has no registry to pull from.
package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is a container image of one layer.
type Image struct {
	// Name is its full reference, such as localhost/busybox:1.
	Name string
	// Config is what a container of it runs when a pod says nothing else.
	Config v1.ImageConfig
	// Files are the content, parents before children.
	Files []File
	// Annotations are those of the image's manifest.
	Annotations map[string]string
}

// Variant returns the image under another name, with its configuration as change leaves it. The
// variables stay in their order, duplicates included.
func (i Image) Variant(name string, change func(config *v1.ImageConfig)) Image {
	i.Name, i.Config.Env = name, slices.Clone(i.Config.Env)
	change(&i.Config)
	return i
}

// File is a file, directory or symbolic link of an image. All belong to root.
type File struct {
	// Path is relative to the root, without a leading slash.
	Path string
	// Mode is the permissions and the kind: a regular file, fs.ModeDir or fs.ModeSymlink.
	Mode fs.FileMode
	// Content is that of a regular file.
	Content []byte
	// Target is where a symbolic link leads.
	Target string
}

// NameAnnotation gives an image of an archive its name. It is containerd's.
const NameAnnotation = "io.containerd.image.name"

// WriteArchive writes images as one OCI archive for linux on the given architecture, such as amd64.
// The same images make the same bytes.
func WriteArchive(w io.Writer, architecture string, images ...Image) error {
	archive := newArchive(w)
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, image := range images {
		descriptor, err := image.addTo(archive, architecture)
		if err != nil {
			return fmt.Errorf("write image %s: %w", image.Name, err)
		}
		descriptor.Annotations = map[string]string{NameAnnotation: image.Name}
		index.Manifests = append(index.Manifests, descriptor)
	}
	if err := archive.addJSON(v1.ImageIndexFile, index); err != nil {
		return err
	}
	if err := archive.addJSON(v1.ImageLayoutFile, v1.ImageLayout{Version: v1.ImageLayoutVersion}); err != nil {
		return err
	}
	return archive.tar.Close()
}

func (i Image) addTo(archive *archive, architecture string) (v1.Descriptor, error) {
	platform := v1.Platform{OS: "linux", Architecture: architecture}
	content, err := layer(i.Files)
	if err != nil {
		return v1.Descriptor{}, err
	}
	layer, err := archive.addBlob(v1.MediaTypeImageLayer, content)
	if err != nil {
		return v1.Descriptor{}, err
	}
	config, err := archive.addJSONBlob(v1.MediaTypeImageConfig, v1.Image{
		Platform: platform,
		Config:   i.Config,
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := archive.addJSONBlob(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    config,
		Layers:    []v1.Descriptor{layer},

		Annotations: i.Annotations,
	})
	manifest.Platform = &platform
	return manifest, err
}

// layer returns files as a tar archive.
func layer(files []File) ([]byte, error) {
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for _, file := range files {
		header := &tar.Header{Name: file.Path, Mode: int64(file.Mode.Perm())}
		switch file.Mode.Type() {
		case fs.ModeDir:
			header.Typeflag = tar.TypeDir
		case fs.ModeSymlink:
			header.Typeflag, header.Linkname = tar.TypeSymlink, file.Target
		case 0:
			header.Typeflag, header.Size = tar.TypeReg, int64(len(file.Content))
		default:
			return nil, fmt.Errorf("file %s: mode %v is not possible in an image", file.Path, file.Mode)
		}
		if file.Mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		if file.Mode&fs.ModeSetuid != 0 {
			header.Mode |= 0o4000
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(file.Content); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return out.Bytes(), err
}

// archive is an OCI image layout as a tar archive. Blobs are kept once, by their content.
type archive struct {
	tar   *tar.Writer
	blobs map[digest.Digest]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{tar: tar.NewWriter(w), blobs: map[digest.Digest]bool{}}
}

func (a *archive) add(name string, content []byte) error {
	if err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := a.tar.Write(content)
	return err
}

func (a *archive) addJSON(name string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return a.add(name, content)
}

func (a *archive) addBlob(mediaType string, content []byte) (v1.Descriptor, error) {
	descriptor := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	if a.blobs[descriptor.Digest] {
		return descriptor, nil
	}
	a.blobs[descriptor.Digest] = true
	return descriptor, a.add(v1.ImageBlobsDir+"/sha256/"+descriptor.Digest.Encoded(), content)
}

func (a *archive) addJSONBlob(mediaType string, value any) (v1.Descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return a.addBlob(mediaType, content)
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// writeImages writes each image as an archive of its OCI layout, and a bill of materials for each
// architecture.
func (r *release) writeImages() error {
	names, err := os.ReadDir(r.images)
	if err != nil {
		return err
	}
	for _, entry := range names {
		dir := filepath.Join(r.images, entry.Name())
		layout, err := directory(dir, "")
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s_%s_image.tar", entry.Name(), r.version)
		if err := r.add(artifact{name: name}, func(w io.Writer) error {
			return writeTar(w, layout, r.created)
		}); err != nil {
			return err
		}
		if err := r.writeImageBills(entry.Name(), dir); err != nil {
			return fmt.Errorf("image %s: %w", entry.Name(), err)
		}
	}
	return nil
}

// writeImageBills writes the bill of materials of an image for each of its architectures.
func (r *release) writeImageBills(name, dir string) error {
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	if err := eachImage(outer, func(image v1.Image, descriptor v1.Descriptor) error {
		if descriptor.Platform == nil {
			return fmt.Errorf("%s has no platform", descriptor.Digest)
		}
		architecture := descriptor.Platform.Architecture
		found[architecture] = true
		content := mutate.Extract(image)
		members, err := readTar(content)
		if err != nil {
			return err
		}
		if err := content.Close(); err != nil {
			return err
		}
		a := artifact{
			name: fmt.Sprintf("%s_%s_image_%s", name, r.version, architecture), contents: members, purpose: "CONTAINER",
		}
		return r.writeBill(a, descriptor.Digest.Hex)
	}); err != nil {
		return err
	}
	for _, architecture := range r.architectures {
		if !found[architecture] {
			return fmt.Errorf("it is not there for %s: make images PLATFORMS=%q", architecture,
				"linux/"+strings.Join(r.architectures, " linux/"))
		}
	}
	return nil
}

// eachImage calls do for the images of an index and of the indexes in it.
func eachImage(index v1.ImageIndex, do func(v1.Image, v1.Descriptor) error) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, descriptor := range manifest.Manifests {
		switch {
		case descriptor.MediaType.IsIndex():
			inner, err := index.ImageIndex(descriptor.Digest)
			if err != nil {
				return err
			}
			if err := eachImage(inner, do); err != nil {
				return err
			}
		case descriptor.MediaType.IsImage():
			image, err := index.Image(descriptor.Digest)
			if err != nil {
				return err
			}
			if err := do(image, descriptor); err != nil {
				return err
			}
		}
	}
	return nil
}

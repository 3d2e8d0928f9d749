// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// chartsDirectory is where the chart is, below the registry's path: helm push adds its name.
const chartsDirectory = "charts/kubedevice"

// What Artifact Hub expects of the metadata of a chart's repository: its tag and its media types
// (https://artifacthub.io/docs/topics/repositories/helm-charts, "OCI support").
const (
	metadataTag                    = "artifacthub.io"
	metadataConfig types.MediaType = "application/vnd.cncf.artifacthub.config.v1+yaml"
	metadataLayer  types.MediaType = "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
)

// spdxJSON is the media type of a bill of materials.
const spdxJSON types.MediaType = "application/spdx+json"

// pusher pushes files of a release to a registry.
type pusher struct {
	dir string // with the files
	to  string // host and path before each image's name
	// options say how the registry is reached, and who pushes.
	options []remote.Option
}

// push pushes images, their bills of materials and the metadata for Artifact Hub, after it has
// verified all files. It writes a line with name and digest of each image. The chart is Helm's.
func push(ctx context.Context, dir, to string, public []byte, out io.Writer) error {
	if _, err := verify(dir, public); err != nil {
		return err
	}
	p := pusher{dir: dir, to: strings.TrimSuffix(to, "/"), options: []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
	}}
	images, err := filepath.Glob(filepath.Join(dir, "*_image.tar"))
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return fmt.Errorf("%s has no image", dir)
	}
	for _, image := range images {
		reference, err := p.pushImage(image)
		if err != nil {
			return fmt.Errorf("push %s: %w", filepath.Base(image), err)
		}
		if _, err := fmt.Fprintln(out, reference); err != nil {
			return err
		}
	}
	return p.pushMetadata()
}

// pushImage pushes an image for all its architectures, and attaches the bill of materials of each.
// It returns the image's name with its digest.
func (p pusher) pushImage(archive string) (reference string, err error) {
	stem := strings.TrimSuffix(filepath.Base(archive), "_image.tar")
	repository, version, _ := strings.Cut(stem, "_")
	tag, err := name.NewTag(p.to + "/" + repository + ":" + version)
	if err != nil {
		return "", err
	}
	unpacked, err := os.MkdirTemp("", "release-push")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unpacked)) }()
	if err := unpack(archive, unpacked); err != nil {
		return "", err
	}
	outer, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		return "", err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("it has %d images, want one", len(manifest.Manifests))
	}
	digest := manifest.Manifests[0].Digest
	index, err := outer.ImageIndex(digest)
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag, index, p.options...); err != nil {
		return "", err
	}
	err = eachImage(index, func(_ v1.Image, of v1.Descriptor) error {
		return p.attachBill(tag.Repository, stem+"_image_"+of.Platform.Architecture+billSuffix, of)
	})
	return tag.Digest(digest.String()).String(), err
}

// attachBill pushes a bill of materials that refers to the image that it is of.
func (p pusher) attachBill(repository name.Repository, file string, of v1.Descriptor) error {
	bill, err := p.file(file, spdxJSON, spdxJSON)
	if err != nil {
		return err
	}
	bill = mutate.Subject(bill, v1.Descriptor{MediaType: of.MediaType, Size: of.Size, Digest: of.Digest}).(v1.Image)
	digest, err := bill.Digest()
	if err != nil {
		return err
	}
	return remote.Write(repository.Digest(digest.String()), bill, p.options...)
}

// pushMetadata pushes what Artifact Hub reads of the chart's repository.
func (p pusher) pushMetadata() error {
	tag, err := name.NewTag(p.to + "/" + chartsDirectory + ":" + metadataTag)
	if err != nil {
		return err
	}
	metadata, err := p.file(metadataName, metadataConfig, metadataLayer)
	if err != nil {
		return err
	}
	return remote.Write(tag, metadata, p.options...)
}

// file makes an artifact of a file of the release. Its kind is the media type of its configuration.
func (p pusher) file(file string, kind, content types.MediaType) (v1.Image, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), kind)
	return mutate.Append(artifact, mutate.Addendum{
		Layer:       static.NewLayer(text, content),
		Annotations: map[string]string{"org.opencontainers.image.title": file},
	})
}

// unpack writes the files of an archive into a directory.
func unpack(file, dir string) error {
	opened, err := os.Open(file)
	if err != nil {
		return err
	}
	defer opened.Close() //nolint:errcheck // opened for reading
	for archive := tar.NewReader(opened); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(path.Clean("/"+header.Name)))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		written, err := os.Create(to)
		if err != nil {
			return err
		}
		_, err = io.Copy(written, archive)
		if err := errors.Join(err, written.Close()); err != nil {
			return err
		}
	}
}

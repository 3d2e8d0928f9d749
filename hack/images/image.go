// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is one of KubeDevice's images.
type image struct {
	name  string
	title string
	// scheduler and kubecri say which programs it has, with their plugins.
	scheduler, kubecri bool
	user               string
	// others says that it is not KubeDevice's: nothing is known of its licence and its sources.
	others     bool
	entrypoint []string
}

// nonroot is user and group of the scheduler, which needs no rights on its node.
const nonroot = "65532:65532"

var images = []image{
	{name: "kubedevice", title: "KubeDevice: kube-scheduler and kubecri", scheduler: true, kubecri: true},
	{
		name: "kubedevice-scheduler", title: "KubeDevice: kube-scheduler", scheduler: true, user: nonroot,
		entrypoint: []string{"/kube-scheduler"},
	},
	{name: "kubedevice-kubecri", title: "KubeDevice: kubecri", kubecri: true, entrypoint: []string{"/kubecri"}},
}

// release is what all images of a release say of themselves.
type release struct {
	version, revision string
	created           time.Time
}

// reference is the name under which a container runtime has the image. Its host is no registry.
func (i image) reference(r release) string { return "localhost/" + i.name + ":" + r.version }

// labels are OCI's annotations, of the image's configuration and of its index.
func (i image) labels(r release) map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":   i.title,
		"org.opencontainers.image.version": r.version,
		"org.opencontainers.image.created": r.created.Format(time.RFC3339),
	}
	if !i.others {
		labels["org.opencontainers.image.revision"] = r.revision
		labels["org.opencontainers.image.licenses"] = "Apache-2.0"
	}
	return labels
}

// write writes the image, for the architectures of contents, as an OCI layout in the place of what
// is in directory. It returns the digest of the image's index.
func (i image) write(directory string, r release, contents []*content) (v1.Hash, error) {
	made := map[string]v1.Image{}
	for _, c := range contents {
		var err error
		if made[c.architecture], err = i.forArchitecture(r, c); err != nil {
			return v1.Hash{}, err
		}
	}
	return i.writeIndex(directory, r, made)
}

// writeIndex writes an image that was made for each architecture.
func (i image) writeIndex(directory string, r release, made map[string]v1.Image) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range slices.Sorted(maps.Keys(made)) {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: made[architecture], Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
	}
	index = mutate.Annotations(index, i.labels(r)).(v1.ImageIndex)
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	if err := os.RemoveAll(directory); err != nil {
		return v1.Hash{}, err
	}
	_, err = layout.Write(directory, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          i.reference(r), // for ctr images import
			"org.opencontainers.image.ref.name": r.version,
		}},
	}))
	return digest, err
}

// forArchitecture returns the image for one architecture.
func (i image) forArchitecture(r release, c *content) (v1.Image, error) {
	layers := []layer{c.base}
	if i.scheduler {
		layers = append(layers, c.scheduler)
	}
	if i.kubecri {
		layers = append(layers, c.kubecri)
	}
	return i.assemble(r, c.architecture, layers)
}

// assemble returns an image of layers.
func (i image) assemble(r release, architecture string, layers []layer) (v1.Image, error) {
	created := v1.Time{Time: r.created}
	var adds []mutate.Addendum
	for _, layer := range layers {
		adds = append(adds, mutate.Addendum{
			Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: layer.title},
		})
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: i.user, Entrypoint: i.entrypoint, WorkingDir: "/", Labels: i.labels(r),
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, adds...)
}

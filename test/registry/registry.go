// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry serves the images of an archive that package image wrote as a container registry
// does, for nodes to pull from. It can only be read, and knows as much of the OCI distribution
// specification as pulling needs.
package registry

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/test/image"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Registry is a handler of HTTP requests for images. It may be used from several goroutines.
type Registry struct {
	// blobs are the archive's blobs by their digest, layers and manifests alike, tags the manifests
	// by repository:tag.
	blobs map[string][]byte
	tags  map[string]v1.Descriptor
}

// Read reads an archive. An image that is named localhost/directory/busybox:1 there is
// directory/busybox:1 in the registry.
func Read(archive io.Reader) (*Registry, error) {
	r := &Registry{blobs: map[string][]byte{}, tags: map[string]v1.Descriptor{}}
	var index v1.Index
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read an image archive: %w", err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return nil, fmt.Errorf("read %s of an image archive: %w", header.Name, err)
		}
		if digest, ok := strings.CutPrefix(header.Name, v1.ImageBlobsDir+"/sha256/"); ok {
			r.blobs["sha256:"+digest] = content
		}
		if header.Name == v1.ImageIndexFile {
			if err := json.Unmarshal(content, &index); err != nil {
				return nil, fmt.Errorf("read %s of an image archive: %w", header.Name, err)
			}
		}
	}
	for _, manifest := range index.Manifests {
		name := manifest.Annotations[image.NameAnnotation]
		if _, ok := r.blobs[manifest.Digest.String()]; !ok || name == "" {
			return nil, fmt.Errorf("read an image archive: image %q, manifest %s, lacks its name or its manifest", name,
				manifest.Digest)
		}
		_, tag, _ := strings.Cut(name, "/")
		r.tags[tag] = manifest
	}
	if len(r.tags) == 0 {
		return nil, errors.New("read an image archive: it has no image: is it one?")
	}
	return r, nil
}

// ServeHTTP answers as the OCI distribution specification says: manifests by tag or digest, blobs
// by digest.
func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry can only be read")
		return
	}
	rest, ok := strings.CutPrefix(request.URL.Path, "/v2/")
	directory, reference := path.Split(rest)
	repository, kind := path.Split(strings.TrimSuffix(directory, "/"))
	repository = strings.TrimSuffix(repository, "/")
	switch {
	case ok && rest == "":
		w.WriteHeader(http.StatusOK)
	case ok && kind == "manifests":
		r.serveManifest(w, request, repository, reference)
	case ok && kind == "blobs":
		r.serveBlob(w, request, "application/octet-stream", reference)
	default:
		refuse(w, http.StatusNotFound, "UNSUPPORTED", request.URL.Path+" is nothing that this registry has")
	}
}

func (r *Registry) serveManifest(w http.ResponseWriter, request *http.Request, repository, reference string) {
	if tagged, ok := r.tags[repository+":"+reference]; ok {
		reference = tagged.Digest.String()
	}
	if _, ok := r.blobs[reference]; !ok {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", repository+" has no "+reference)
		return
	}
	r.serveBlob(w, request, v1.MediaTypeImageManifest, reference)
}

func (r *Registry) serveBlob(w http.ResponseWriter, request *http.Request, mediaType, digest string) {
	content, ok := r.blobs[digest]
	if !ok {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "there is no blob "+digest)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, request, "", time.Time{}, bytes.NewReader(content))
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{ //nolint:errcheck // the caller is gone
		"errors": []map[string]string{{"code": code, "message": message}},
	})
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/image"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

func newRegistry(t *testing.T) *Registry {
	t.Helper()
	var archive bytes.Buffer
	pause := image.NewPause([]byte("pause"))
	inDirectory := pause
	inDirectory.Name = "localhost/directory/pause:2"
	if err := image.WriteArchive(&archive, "amd64", pause, inDirectory); err != nil {
		t.Fatal(err)
	}
	r, err := Read(&archive)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func request(r *Registry, method, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer
}

func TestAnImageCanBePulledByItsTagWithEveryBlobThatItsManifestNames(t *testing.T) {
	r := newRegistry(t)
	tagged := request(r, http.MethodGet, "/v2/pause/manifests/1")
	var manifest v1.Manifest
	if err := json.Unmarshal(tagged.Body.Bytes(), &manifest); err != nil {
		t.Fatalf("%d %s: %v", tagged.Code, tagged.Body, err)
	}
	if got := tagged.Header().Get("Content-Type"); got != v1.MediaTypeImageManifest {
		t.Errorf("the manifest is of type %q", got)
	}
	said := tagged.Header().Get("Docker-Content-Digest")
	if want := digest.FromBytes(tagged.Body.Bytes()).String(); said != want {
		t.Errorf("the manifest's digest is %s, the header says %q", want, said)
	}
	if again := request(r, http.MethodHead, "/v2/pause/manifests/"+said); again.Code != http.StatusOK ||
		again.Body.Len() > 0 {
		t.Errorf("HEAD by digest: %d, %d bytes", again.Code, again.Body.Len())
	}
	for _, blob := range append(manifest.Layers, manifest.Config) {
		answer := request(r, http.MethodGet, "/v2/pause/blobs/"+blob.Digest.String())
		if digest.FromBytes(answer.Body.Bytes()) != blob.Digest {
			t.Errorf("blob %s: %d, %d bytes of something else", blob.Digest, answer.Code, answer.Body.Len())
		}
	}
}

func TestMissingImagesAreNotFound(t *testing.T) {
	r := newRegistry(t)
	for name, test := range map[string]struct {
		method, path string
		status       int
		code         string
	}{
		"the greeting":        {http.MethodGet, "/v2/", http.StatusOK, ""},
		"a directory's":       {http.MethodGet, "/v2/directory/pause/manifests/2", http.StatusOK, ""},
		"another directory's": {http.MethodGet, "/v2/pause/manifests/2", http.StatusNotFound, "MANIFEST_UNKNOWN"},
		"another tag":         {http.MethodGet, "/v2/pause/manifests/2", http.StatusNotFound, "MANIFEST_UNKNOWN"},
		"another repository":  {http.MethodGet, "/v2/more/pause/manifests/1", http.StatusNotFound, "MANIFEST_UNKNOWN"},
		"another blob":        {http.MethodGet, "/v2/pause/blobs/sha256:00", http.StatusNotFound, "BLOB_UNKNOWN"},
		"another question":    {http.MethodGet, "/v2/pause/tags/list", http.StatusNotFound, "UNSUPPORTED"},
		"a page":              {http.MethodGet, "/", http.StatusNotFound, "UNSUPPORTED"},
		"an upload": {
			http.MethodPost, "/v2/pause/blobs/uploads/", http.StatusMethodNotAllowed, "UNSUPPORTED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := request(r, test.method, test.path)
			if answer.Code != test.status || !strings.Contains(answer.Body.String(), test.code) {
				t.Errorf("%s %s: %d %s, want %d %s", test.method, test.path, answer.Code, answer.Body,
					test.status, test.code)
			}
		})
	}
}

func TestFilesThatAreNoArchivesAreRefused(t *testing.T) {
	for name, content := range map[string]string{"nothing": "", "no archive": strings.Repeat("x", 1024)} {
		if _, err := Read(strings.NewReader(content)); err == nil {
			t.Errorf("%s was read as an archive", name)
		}
	}
}

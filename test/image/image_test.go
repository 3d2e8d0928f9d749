// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kubedevice/kubedevice/test/image"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// entries returns the regular files of a tar archive by name, and for all entries a line that
// describes them.
func entries(t *testing.T, archive []byte) (content map[string][]byte, list []string) {
	t.Helper()
	content = map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return content, list
		}
		if err != nil {
			t.Fatal(err)
		}
		line := header.FileInfo().Mode().String() + " " + header.Name
		if header.Linkname != "" {
			line += " -> " + header.Linkname
		}
		list = append(list, line)
		if content[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func decode[T any](t *testing.T, content []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func write(t *testing.T, images ...image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := image.WriteArchive(&out, "amd64", images...); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAnArchiveHoldsEveryImageWithItsNameConfigAndFiles(t *testing.T) {
	busybox := image.NewBusybox([]byte("program"), "bin/sh\nusr/bin/[\nbin/busybox\n")
	busybox.Annotations = map[string]string{"on": "the manifest"}
	content, _ := entries(t, write(t, image.NewPause([]byte("pause")), busybox))

	for name, blob := range content {
		if sum, is := strings.CutPrefix(name, "blobs/sha256/"); is {
			if got := sha256.Sum256(blob); hex.EncodeToString(got[:]) != sum {
				t.Errorf("blob %s has another digest", name)
			}
		}
	}
	index := decode[v1.Index](t, content["index.json"])
	var names []string
	var layers [][]string
	var annotations []map[string]string
	for _, descriptor := range index.Manifests {
		names = append(names, descriptor.Annotations["io.containerd.image.name"])
		manifest := decode[v1.Manifest](t, content["blobs/sha256/"+descriptor.Digest.Encoded()])
		annotations = append(annotations, manifest.Annotations)
		config := decode[v1.Image](t, content["blobs/sha256/"+manifest.Config.Digest.Encoded()])
		if config.OS != "linux" || config.Architecture != "amd64" ||
			config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
			t.Errorf("config %+v", config)
		}
		_, list := entries(t, content["blobs/sha256/"+manifest.Layers[0].Digest.Encoded()])
		layers = append(layers, list)
	}
	if diff := cmp.Diff([]string{image.Pause, image.Busybox}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]map[string]string{nil, {"on": "the manifest"}}, annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	want := [][]string{
		{"-rwxr-xr-x pause"},
		{
			"drwxr-xr-x bin", "drwxr-xr-x dev", "drwxr-xr-x etc", "drwxr-xr-x proc", "drwxr-xr-x sys", "drwxr-xr-x usr",
			"dtrwxrwxrwx tmp",
			"-rwxr-xr-x bin/busybox", "-rw-r--r-- etc/passwd", "-rw-r--r-- etc/group",
			"Lrwxrwxrwx bin/sh -> /bin/busybox", "drwxr-xr-x usr/bin", "Lrwxrwxrwx usr/bin/[ -> /bin/busybox",
		},
	}
	if diff := cmp.Diff(want, layers); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestTheSameImagesMakeTheSameBytes(t *testing.T) {
	pause := image.NewPause([]byte("pause"))
	if !bytes.Equal(write(t, pause), write(t, pause)) {
		t.Error("two archives of one image differ")
	}
}

func TestImagesThatShareALayerHoldItOnce(t *testing.T) {
	a, b := image.NewPause([]byte("pause")), image.NewPause([]byte("pause"))
	b.Name = "localhost/other:1"
	_, list := entries(t, write(t, a, b))
	if want := 5; len(list) != want { // layer, config, manifest, index.json, oci-layout
		t.Errorf("%d entries, want %d: %q", len(list), want, list)
	}
}

func TestAFileOfAnImpossibleKindIsAnErrorThatNamesIt(t *testing.T) {
	err := image.WriteArchive(io.Discard, "amd64", image.Image{
		Name: "localhost/odd:1", Files: []image.File{{Path: "dev/null", Mode: fs.ModeDevice}},
	})
	if err == nil || !strings.Contains(err.Error(), "localhost/odd:1") || !strings.Contains(err.Error(), "dev/null") {
		t.Errorf("error %v", err)
	}
}

func TestConformanceImagesShareTheirLayersAndHaveNamesOfTheirOwn(t *testing.T) {
	pause, busybox := image.NewPause([]byte("pause")), image.NewBusybox([]byte("program"), "bin/sh\n")
	images := image.NewConformance(pause, busybox, []byte("euid"), "amd64")
	content, _ := entries(t, write(t, images...))
	own, _ := entries(t, write(t, pause, busybox))
	taken := map[string]bool{}
	for _, descriptor := range decode[v1.Index](t, own["index.json"]).Manifests {
		taken[descriptor.Digest.String()] = true
	}

	names, manifests := map[string]bool{}, map[string]int{}
	for _, descriptor := range decode[v1.Index](t, content["index.json"]).Manifests {
		name := descriptor.Annotations["io.containerd.image.name"]
		if names[name] {
			t.Errorf("two images are %s", name)
		}
		names[name] = true
		if taken[descriptor.Digest.String()] {
			t.Errorf("%s is an image of the node's own, which would go when the tests remove theirs", name)
		}
		manifests[descriptor.Digest.String()]++
	}
	if want := len(images) - 2 - 1; len(manifests) != want { // three tags are one image, and two web servers on port 80
		t.Errorf("%d images have %d different manifests, want %d", len(images), len(manifests), want)
	}
	if !bytes.Equal(write(t, images...), write(t, image.NewConformance(pause, busybox, []byte("euid"), "amd64")...)) {
		t.Error("made twice, they differ")
	}
}

func TestAProgramThatIsSetuidIsSoInTheImage(t *testing.T) {
	content, _ := entries(t, write(t, image.Image{
		Name: "localhost/setuid:1", Files: []image.File{{Path: "euid", Mode: fs.ModeSetuid | 0o755}},
	}))
	index := decode[v1.Index](t, content["index.json"])
	manifest := decode[v1.Manifest](t, content["blobs/sha256/"+index.Manifests[0].Digest.Encoded()])
	_, list := entries(t, content["blobs/sha256/"+manifest.Layers[0].Digest.Encoded()])
	if diff := cmp.Diff([]string{"urwxr-xr-x euid"}, list); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestAVariantKeepsDuplicatesOfVariablesAndLeavesTheImageAsItWas(t *testing.T) {
	busybox := image.NewBusybox([]byte("program"), "bin/sh\n")
	variant := busybox.Variant("localhost/variant:1", func(config *v1.ImageConfig) {
		config.Env = append(config.Env, "A=1", "A=2")
	})
	content, _ := entries(t, write(t, busybox, variant))
	var got [][]string
	for _, descriptor := range decode[v1.Index](t, content["index.json"]).Manifests {
		manifest := decode[v1.Manifest](t, content["blobs/sha256/"+descriptor.Digest.Encoded()])
		config := decode[v1.Image](t, content["blobs/sha256/"+manifest.Config.Digest.Encoded()])
		got = append(got, config.Config.Env)
	}
	path := busybox.Config.Env[0]
	if diff := cmp.Diff([][]string{{path}, {path, "A=1", "A=2"}}, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

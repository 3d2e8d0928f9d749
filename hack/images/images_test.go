// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var testRelease = release{version: "v1.2.3", revision: "abc", created: time.Unix(1700000000, 0).UTC()}

// write makes files below a new directory, from their paths and contents.
func write(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// debian returns the files of a package with this content, which dpkg-deb makes.
func debian(t *testing.T, content map[string]string) files {
	t.Helper()
	content["DEBIAN/control"] = "Package: example\nVersion: 1\nArchitecture: all\nMaintainer: none\n" +
		"Description: none\n"
	deb := filepath.Join(t.TempDir(), "example.deb")
	command(t, "dpkg-deb", "--build", "--root-owner-group", write(t, content), deb)
	unpacked, err := unpack(t.Context(), []string{deb})
	if err != nil {
		t.Fatal(err)
	}
	return unpacked
}

func command(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(arguments, " "), err, out)
	}
}

// built returns a content for this machine. The test itself stands for all programs and plugins.
func built(t *testing.T, example string) *content {
	t.Helper()
	base := debian(t, map[string]string{"etc/example": example})
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"LICENSE": "a licence\n"}
	for _, name := range []string{
		"kube-scheduler", "kubecri", "plugins/scheduler/nvidiagpu.so", "plugins/scheduler/simgpu.so",
		"plugins/device/nvidiagpu.so", "plugins/simulated/simgpu.so",
	} {
		programs[name] = string(text)
	}
	dir := write(t, programs)
	c, err := newContent(runtime.GOARCH, base, dir, filepath.Join(dir, "LICENSE"),
		testRelease.created)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tree returns the contents of all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		found[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestBuildsAreReproducible(t *testing.T) {
	first, second := built(t, "an example\n"), built(t, "an example\n") // at other paths, at another time
	changed := built(t, "another one\n")
	one, two := t.TempDir(), t.TempDir()
	for _, image := range images {
		digest, err := image.write(filepath.Join(one, image.name), testRelease, []*content{first})
		if err != nil {
			t.Fatal(err)
		}
		again, err := image.write(filepath.Join(two, image.name), testRelease, []*content{second})
		if err != nil {
			t.Fatal(err)
		}
		if digest != again {
			t.Errorf("image %s has the digests %s and %s", image.name, digest, again)
		}
		if other, err := image.write(t.TempDir(), testRelease, []*content{changed}); err != nil || other == digest {
			t.Errorf("image %s with another file has the digest %s, %v", image.name, other, err)
		}
	}
	if !cmp.Equal(tree(t, one), tree(t, two)) {
		t.Error("the files of the two are different")
	}
}

// read returns index and image of a layout that has one of each.
func read(t *testing.T, dir string) (v1.ImageIndex, v1.Image, v1.Descriptor) {
	t.Helper()
	only := func(index v1.ImageIndex) v1.Descriptor {
		t.Helper()
		manifest, err := index.IndexManifest()
		if err != nil || len(manifest.Manifests) != 1 {
			t.Fatalf("the index is %v, %v", manifest, err)
		}
		return manifest.Manifests[0]
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	descriptor := only(outer)
	index, err := outer.ImageIndex(descriptor.Digest)
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(only(index).Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index, image, descriptor
}

func TestAnImageHasItsProgramsAndSaysWhatItIs(t *testing.T) {
	c := built(t, "an example\n")
	scheduler := []string{"kube-scheduler", "schedulerplugins/nvidiagpu.so", "schedulerplugins/simgpu.so"}
	kubecri := []string{
		"kubecri", "usr/local/KubeExt/devices/nvidiagpu.so", "usr/local/KubeExt/simulated/simgpu.so",
	}
	for _, image := range images {
		t.Run(image.name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := image.write(dir, testRelease, []*content{c}); err != nil {
				t.Fatal(err)
			}
			index, made, descriptor := read(t, dir)
			if err := validate.Index(index); err != nil {
				t.Error(err)
			}
			if got, want := descriptor.Annotations["io.containerd.image.name"],
				"localhost/"+image.name+":v1.2.3"; got != want {
				t.Errorf("containerd calls it %q, want %q", got, want)
			}
			config, err := made.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if user := config.Config.User; (user == nonroot) != (image.name == "kubedevice-scheduler") {
				t.Errorf("its user is %q", user)
			}
			for label, want := range map[string]string{
				"title": image.title, "version": "v1.2.3", "revision": "abc", "licenses": "Apache-2.0",
			} {
				if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
					t.Errorf("its label %s is %q, want %q", label, got, want)
				}
			}

			content := extract(t, made)
			for _, path := range append(append([]string{}, scheduler...), kubecri...) {
				_, has := content[path]
				part := kubecri
				if strings.HasPrefix(path, "kube-scheduler") || strings.HasPrefix(path, "schedulerplugins") {
					part = scheduler
				}
				want := image.scheduler && &part[0] == &scheduler[0] || image.kubecri && &part[0] == &kubecri[0]
				if has != want {
					t.Errorf("it has /%s: %t, want %t", path, has, want)
				}
			}
			for path, header := range content {
				if header.Uid != 0 || header.Mode&0o022 != 0 && header.Typeflag != tar.TypeSymlink {
					t.Errorf("/%s is of user %d, mode %o: users may write it", path, header.Uid, header.Mode)
				}
				if !header.ModTime.Equal(testRelease.created) {
					t.Errorf("/%s is of %v", path, header.ModTime)
				}
			}
			for _, path := range []string{"etc/example", "etc/passwd", "usr/share/doc/kubedevice/copyright"} {
				if _, ok := content[path]; !ok {
					t.Errorf("it lacks /%s", path)
				}
			}
		})
	}
}

// extract returns what an image has, by path.
func extract(t *testing.T, image v1.Image) map[string]tar.Header {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	found := map[string]tar.Header{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimSuffix(header.Name, "/")] = *header
	}
}

func TestABaseHasPackagesWithoutTheirDocumentation(t *testing.T) {
	all := debian(t, map[string]string{
		"usr/bin/example":                       "a program\n",
		"usr/share/doc/example/copyright":       "a licence\n",
		"usr/share/doc/example/changelog.gz":    "changes\n",
		"usr/share/man/man1/example.1":          "a manual\n",
		"usr/share/ca-certificates/b/other.crt": "B\n",
		"usr/share/ca-certificates/a/some.crt":  "A\n\n",
	})
	for path, want := range map[string]bool{
		"usr/bin/example": true, "usr/share/doc/example/copyright": true, "var/lib/dpkg/status.d/example": true,
		"usr/share/doc/example/changelog.gz": false, "usr/share/man/man1/example.1": false,
	} {
		if _, ok := all[path]; ok != want {
			t.Errorf("it has /%s: %t, want %t", path, ok, want)
		}
	}
	if got := string(all["etc/ssl/certs/ca-certificates.crt"].content); got != "A\nB\n" {
		t.Errorf("the certificates are %q", got)
	}
	if got := string(all["var/lib/dpkg/status.d/example"].content); !strings.Contains(got, "Version: 1\n") {
		t.Errorf("the package's status is %q", got)
	}
}

func TestAProgramThatNeedsANewerLibraryOrAnotherMachineIsRefused(t *testing.T) {
	for version, want := range map[string]string{
		"GLIBC_2.34": "", "GLIBC_2.35": "glibc 2.35", "GLIBC_3.0": "glibc 3.0",
	} {
		dir := write(t, map[string]string{
			"library.c": "void example(void) {}\n",
			"versions":  version + " { global: example; };\n",
			"program.c": "void example(void);\nint main(void) { example(); return 0; }\n",
		})
		library, program := filepath.Join(dir, "libexample.so"), filepath.Join(dir, "program")
		command(t, "gcc", "-shared", "-fPIC", "-Wl,--version-script="+filepath.Join(dir, "versions"), "-o", library,
			filepath.Join(dir, "library.c"))
		command(t, "gcc", "-o", program, filepath.Join(dir, "program.c"), library)
		err := checkProgram(program, runtime.GOARCH)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a program that needs %s: %v, want %q", version, err, want)
		}
		other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
		if err := checkProgram(program, other); err == nil || !strings.Contains(err.Error(), "build it for "+other) {
			t.Errorf("a program of %s in an image for %s: %v", runtime.GOARCH, other, err)
		}
	}
}

func TestVersionsOfTheLibraryAreComparedByNumber(t *testing.T) {
	for version, want := range map[string]bool{
		"2.2.5": false, "2.4": false, "2.34": false, "2.34.1": true, "2.36": true, "2.100": true, "10.1": true,
		"PRIVATE": true,
	} {
		if got := newer(version, "2.34"); got != want {
			t.Errorf("%s is newer than 2.34: %t, want %t", version, got, want)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// given is a release that make release has written, and signed, for make release-trial.
var given = flag.String("release", "", "directory of a signed release to push, instead of a small one")

// newRegistry starts a registry of a library in this process, and returns its host.
func newRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(
		registry.WithReferrersSupport(true),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir())),
		registry.Logger(log.New(io.Discard, "", 0)),
	))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// helm builds Helm and returns a function that runs it, with all its files in a directory of the
// test.
func helm(t *testing.T) func(arguments ...string) string {
	t.Helper()
	binary, home := buildProgram(t, "../chart", "helm.sh/helm/v4/cmd/helm"), t.TempDir()
	return func(arguments ...string) string {
		t.Helper()
		return runProgram(t, binary, []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home,
			"HELM_DATA_HOME=" + home}, arguments...)
	}
}

// released returns the directory of a release: the one of the flag, or a small one with the real
// chart.
func released(t *testing.T, helm func(...string) string, registry string) string {
	t.Helper()
	if *given != "" {
		return *given
	}
	r := inputs(t)
	r.key, r.registry = generateKey(t), registry
	must(t, os.RemoveAll(r.charts))
	helm("package", filepath.Join(checkout, "deploy", "chart"), "--destination", r.charts, "--version", "1.2.3",
		"--app-version", r.version)
	must(t, r.write(t.Context(), io.Discard))
	return r.out
}

// onlyFile returns the one file of a directory that a pattern matches.
func onlyFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if must(t, err); len(found) != 1 {
		t.Fatalf("%s has %q for %s, want one", dir, found, pattern)
	}
	return found[0]
}

func TestARegistryHasImagesBillsAndChartOfTheRelease(t *testing.T) {
	helm, to := helm(t), newRegistry(t)+"/devices"
	dir := released(t, helm, to)
	var out bytes.Buffer
	must(t, run(t.Context(), []string{"push", "-key", filepath.Join(dir, publicName), "-to", to, dir}, &out))
	pushed := strings.Fields(out.String())
	archives, err := filepath.Glob(filepath.Join(dir, "*_image.tar"))
	if must(t, err); len(archives) == 0 || len(pushed) != len(archives) {
		t.Fatalf("%q are pushed of %q", pushed, archives)
	}
	for i, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) { checkPushed(t, archive, pushed[i]) })
	}

	chart := onlyFile(t, dir, "kubedevice-*.tgz")
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(chart), "kubedevice-"), ".tgz")
	t.Log(helm("push", chart, "oci://"+to+"/charts", "--plain-http"))
	reference := []string{"oci://" + to + "/charts/kubedevice", "--version", version, "--plain-http"}
	back := t.TempDir()
	helm(append([]string{"pull", "--destination", back}, reference...)...)
	if sent, got := readFile(t, chart), readFile(t, filepath.Join(back, filepath.Base(chart))); sent != got {
		t.Error("the chart that is pulled is another one")
	}
	shown := helm(append([]string{"show", "chart"}, reference...)...)
	for _, want := range []string{"version: " + version, "artifacthub.io/license: Apache-2.0"} {
		if !strings.Contains(shown, want) {
			t.Errorf("Helm shows no %q in the chart:\n%s", want, shown)
		}
	}
	if *given == "" && (!strings.Contains(shown, "image: "+to+"/kubedevice-kubecri:") ||
		!strings.Contains(helm(append([]string{"show", "values"}, reference...)...), "\n  registry: "+to+"\n")) {
		t.Errorf("the chart takes its images from elsewhere than %s:\n%s", to, shown)
	}
	metadata, err := name.ParseReference(to + "/charts/kubedevice:artifacthub.io")
	must(t, err)
	if got := content(t, metadata); got != readFile(t, filepath.Join(dir, "artifacthub-repo.yml")) {
		t.Errorf("Artifact Hub reads\n%s", got)
	}
}

// checkPushed makes sure that the registry has an image as its archive has it: the same digest
// under its tag, each architecture whole, and a bill of materials that refers to it.
func checkPushed(t *testing.T, archive, pushed string) {
	unpacked := t.TempDir()
	must(t, unpack(archive, unpacked))
	outer, err := layout.ImageIndexFromPath(unpacked)
	must(t, err)
	manifest, err := outer.IndexManifest()
	must(t, err)
	digest, err := name.NewDigest(pushed)
	must(t, err)
	if want := manifest.Manifests[0].Digest.String(); digest.DigestStr() != want {
		t.Errorf("%s is pushed, and the release's is %s", pushed, want)
	}
	repository, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(archive), "_image.tar"), "_")
	tagged, err := remote.Head(digest.Context().Tag(version))
	must(t, err)
	if tagged.Digest.String() != digest.DigestStr() || !strings.HasSuffix(digest.RepositoryStr(), "/"+repository) {
		t.Errorf("%s is %s under its tag", pushed, tagged.Digest)
	}
	index, err := remote.Index(digest)
	must(t, err)
	var architectures []string
	must(t, eachImage(index, func(image v1.Image, of v1.Descriptor) error {
		architectures = append(architectures, of.Platform.Architecture)
		layers, err := image.Layers()
		must(t, err)
		for _, layer := range layers {
			read, err := layer.Uncompressed() // which compares it with its digest
			must(t, err)
			_, err = io.Copy(io.Discard, read)
			must(t, err)
		}
		bills, err := remote.Referrers(digest.Context().Digest(of.Digest.String()),
			remote.WithFilter("artifactType", string(spdxJSON)))
		must(t, err)
		found, err := bills.IndexManifest()
		must(t, err)
		if len(found.Manifests) != 1 {
			t.Fatalf("%s has the bills %v, want one", of.Platform, found.Manifests)
		}
		file := strings.TrimSuffix(archive, ".tar") + "_" + of.Platform.Architecture + billSuffix
		if got := content(t, digest.Context().Digest(found.Manifests[0].Digest.String())); got != readFile(t, file) {
			t.Errorf("the bill of %s is not %s", of.Platform, file)
		}
		return nil
	}))
	if slices.Sort(architectures); *given == "" && !slices.Equal(architectures, testArchitectures) {
		t.Errorf("it is there for %q", architectures)
	}
	t.Logf("%s, for %q", pushed, architectures)
}

// content returns what the one layer of an artifact has.
func content(t *testing.T, reference name.Reference) string {
	t.Helper()
	artifact, err := remote.Image(reference)
	must(t, err)
	layers, err := artifact.Layers()
	if must(t, err); len(layers) != 1 {
		t.Fatalf("%s has %d layers, want one", reference, len(layers))
	}
	read, err := layers[0].Uncompressed()
	must(t, err)
	text, err := io.ReadAll(read)
	must(t, err)
	return string(text)
}

func TestFilesThatAreNotThoseOfTheReleaseAreNotPushed(t *testing.T) {
	r := inputs(t)
	r.key = generateKey(t)
	must(t, r.write(t.Context(), io.Discard))
	to := newRegistry(t)
	writeFile(t, filepath.Join(r.out, "kubedevice-kubecri_v1.2.3_image_arm64.spdx.json"), "{}")
	public := filepath.Join(r.out, publicName)
	err := run(t.Context(), []string{"push", "-key", public, "-to", to, r.out}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "_arm64.spdx.json has the checksum") {
		t.Errorf("a file that was changed: %v", err)
	}
	tag, err := name.NewTag(to + "/kubedevice-kubecri:v1.2.3")
	must(t, err)
	if _, err := remote.Head(tag); err == nil {
		t.Error("the image is there")
	}
}

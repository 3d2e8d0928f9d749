// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What deploy/second-scheduler takes from other directories is all that kubectl apply -f would.
func TestKustomizationsNameAllManifestsOfTheirDirectory(t *testing.T) {
	for _, directory := range []string{"policies", "rbac"} {
		directory = filepath.Join(root, "deploy", directory)
		text, err := os.ReadFile(filepath.Join(directory, "Kustomization"))
		if err != nil {
			t.Fatal(err)
		}
		var kustomization struct{ Resources []string }
		if err := yaml.Unmarshal(text, &kustomization); err != nil {
			t.Fatal(err)
		}
		manifests, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range manifests {
			manifests[i] = filepath.Base(manifests[i])
		}
		if !slices.Equal(kustomization.Resources, manifests) {
			t.Errorf("%s names %q, and has the manifests %q", directory, kustomization.Resources, manifests)
		}
	}
}

var (
	makeVersion  = regexp.MustCompile(`(?m)^VERSION +:= (\S+)$`)
	imageVersion = regexp.MustCompile(`(?:newTag: |kubedevice(?:-scheduler|-kubecri)?:)(v[0-9][0-9.]*)`)
)

func TestManifestsAndDocumentsNameTheImagesOfThisVersion(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	version := makeVersion.FindSubmatch(makefile)
	if version == nil {
		t.Fatal("the Makefile has no VERSION")
	}
	texts := documents(t)
	for _, directory := range []string{"second-scheduler", "kustomize"} {
		kustomization := filepath.Join("deploy", directory, "kustomization.yaml")
		text, err := os.ReadFile(filepath.Join(root, kustomization))
		if err != nil {
			t.Fatal(err)
		}
		texts[kustomization] = string(text)
		if !imageVersion.Match(text) {
			t.Errorf("%s names no version of the image", kustomization)
		}
	}
	for name, text := range texts {
		for _, match := range imageVersion.FindAllStringSubmatch(text, -1) {
			if match[1] != string(version[1]) {
				t.Errorf("%s names an image of %s, and this is %s", name, match[1], version[1])
			}
		}
	}
}

// Some are patches, which no test of a cluster applies.
func TestManifestsOfDeployAreYAML(t *testing.T) {
	deploy, found := filepath.Join(root, "deploy"), 0
	err := filepath.WalkDir(deploy, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name == filepath.Join(deploy, "chart"):
			return filepath.SkipDir // its templates become YAML
		case filepath.Ext(name) != ".yaml":
			return nil
		}
		found++
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var object any
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil || object == nil {
				t.Errorf("%s has a document that is no YAML, or empty: %v\n%s", name, err, document)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%s has %d manifests: %v", deploy, found, err)
	}
}

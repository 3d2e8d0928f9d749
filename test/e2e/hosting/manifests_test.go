// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/checkout"
)

// The directory that kubelets have, and the one that the manifests mount in its place.
const (
	kubelets = "/var/lib/kubelet/device-plugins"
	ours     = "/var/lib/kubedevice/device-plugins"
)

func TestTheManifestsDifferFromTheVendorsInTheMountedDirectoryAlone(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	directories, err := filepath.Glob(filepath.Join(root, "deploy", "device-plugins", "*", "kustomization.yaml"))
	if err != nil || len(directories) == 0 {
		t.Fatalf("there are no manifests: %v", err)
	}
	for _, path := range directories {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			theirs, patched := t.TempDir(), t.TempDir()
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			source := vendorsManifest(t, root, content)
			write(t, theirs, "kustomization.yaml", "resources: ["+relative(t, theirs, source)+"]")
			write(t, patched, "kustomization.yaml",
				remote.ReplaceAllString(string(content), "- "+relative(t, patched, source)))
			patch, err := os.ReadFile(filepath.Join(filepath.Dir(path), "directory.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, patched, "directory.yaml", string(patch))

			before, after := kustomize(t, theirs), kustomize(t, patched)

			if count := strings.Count(before, "path: "+kubelets+"\n"); count != 1 {
				t.Fatalf("the vendor mounts the kubelet's directory %d times:\n%s", count, before)
			}
			want := decode(t, strings.Replace(before, "path: "+kubelets+"\n", "path: "+ours+"\n", 1))
			got := decode(t, after)
			inOrder := cmpopts.SortSlices(func(a, b corev1.Volume) bool { return a.Name < b.Name })
			if diff := cmp.Diff(want, got, inOrder); diff != "" {
				t.Errorf("the vendor's manifests with another directory, and ours (-want +got):\n%s", diff)
			}
			expectMounted(t, got)
		})
	}
}

// remote is the line of a kustomization that says where the vendor's manifests are.
var remote = regexp.MustCompile(`(?m)^- https://.*$`)

// versioned finds a vendor's version in an address: behind a repository, or as a reference.
var versioned = regexp.MustCompile(`/(v[0-9.]+)(/|$)`)

// vendorsManifest returns where the module that the plugin is built from has what the kustomization
// takes from the vendor's repository.
func vendorsManifest(t *testing.T, root string, kustomization []byte) string {
	t.Helper()
	line := string(remote.Find(kustomization))
	address, err := url.Parse(strings.TrimPrefix(line, "- "))
	if err != nil || line == "" {
		t.Fatalf("the kustomization names no address of its vendor: %q, %v", line, err)
	}
	path, version := address.Path, address.Query().Get("ref")
	if version == "" {
		match := versioned.FindStringSubmatch(path)
		if match == nil {
			t.Fatalf("%s names no version", address)
		}
		path, version = strings.Replace(path, "/"+match[1], "", 1), match[1]
	}
	segments := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	module := "github.com/" + segments[0] + "/" + segments[1]
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	command.Dir = filepath.Join(root, "test", "third_party", "device-plugins")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	var found struct{ Dir, Version string }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	if found.Version != version {
		t.Fatalf("the manifests are of %s %s, the plugin that is tested of %s", module, version, found.Version)
	}
	return filepath.Join(found.Dir, segments[2])
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	path, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func kustomize(t *testing.T, dir string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(programs, "kubectl"), "kustomize",
		"--load-restrictor=LoadRestrictionsNone", dir)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, &stderr)
	}
	return string(out)
}

// decode reads manifests, DaemonSets strictly.
func decode(t *testing.T, manifests string) []any {
	t.Helper()
	var objects []any
	for manifest := range strings.SplitSeq(manifests, "\n---\n") {
		var object any = &map[string]any{}
		if strings.Contains(manifest, "\nkind: DaemonSet\n") {
			object = &appsv1.DaemonSet{}
		}
		if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

// expectMounted checks where the plugin finds the directory.
func expectMounted(t *testing.T, objects []any) {
	t.Helper()
	for _, object := range objects {
		set, ok := object.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		for _, volume := range set.Spec.Template.Spec.Volumes {
			for _, mount := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
				if volume.HostPath != nil && volume.HostPath.Path == ours && mount.Name == volume.Name &&
					mount.MountPath == kubelets {
					return
				}
			}
		}
	}
	t.Errorf("no DaemonSet mounts %s at %s", ours, kubelets)
}

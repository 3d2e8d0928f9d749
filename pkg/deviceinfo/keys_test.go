// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// keyLike is what a key of ours, or one by which containers get devices, looks like in Go.
var keyLike = regexp.MustCompile(`"(KubeDevice/[A-Za-z]+|(?:[a-z.]*kubedevice\.io|(?:app\.)?kubernetes\.io|` +
	`cdi\.k8s\.io|[a-z.-]*noderesource\.dev)(?:/[A-Za-z.-]*)?|io\.kubernetes\.cri-o\.Devices|devices\.crio\.io)"`)

// notKeys are texts of that form that are none.
var notKeys = map[string]bool{
	"cli.kubedevice.io/": true, "cli.kubedevice.io/v": true, // versions of the API
	"kubernetes.io": true, "kubedevice.io": true, // domains
	"kubedevice.io/variables": true, // a kind of CDI devices
}

func TestReferenceNamesEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range Keys() {
		if !strings.Contains(string(page), "`"+strings.TrimSuffix(key.Name, "/")) {
			t.Errorf("docs/reference/annotations.md lacks %s", key.Name)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `(KubeDevice/[A-Za-z]+)`")
	for _, row := range rows.FindAllStringSubmatch(string(page), -1) {
		if !slices.ContainsFunc(Keys(), func(key Key) bool { return key.Name == row[1] }) {
			t.Errorf("docs/reference/annotations.md has %s, and there is no such key", row[1])
		}
	}
}

func TestEveryKeyThatIsReadIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, key := range Keys() {
		listed[key.Name] = true
	}
	found := map[string]bool{}
	for _, root := range []string{"../../pkg", "../../cmd", "../../plugins"} {
		if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, "deviceinfo/keys.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range keyLike.FindAllStringSubmatch(string(text), -1) {
				key := match[1]
				found[key] = true
				if !listed[key] && !notKeys[key] {
					t.Errorf("%s reads %s, which Keys does not list: say there what it weakens", path, key)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{Annotation, "kubedevice.io/node-group", requiredPlugins, "cdi.k8s.io/"} {
		if !found[key] {
			t.Errorf("the key %s was not found: the pattern misses it", key)
		}
	}
}

// object returns an object of a resource with metadata.
func object(t *testing.T, resource string, metadata metav1.ObjectMeta) runtime.Object {
	t.Helper()
	metadata.Name = "n"
	if resource != "nodes" {
		metadata.Namespace = "team"
	}
	typeMeta := metav1.TypeMeta{APIVersion: "v1"}
	switch resource {
	case "pods":
		typeMeta.Kind = "Pod"
		return &corev1.Pod{
			TypeMeta: typeMeta, ObjectMeta: metadata,
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		}
	case "bindings":
		typeMeta.Kind = "Binding"
		return &corev1.Binding{TypeMeta: typeMeta, ObjectMeta: metadata}
	case "nodes":
		typeMeta.Kind = "Node"
		return &corev1.Node{TypeMeta: typeMeta, ObjectMeta: metadata}
	case "leases":
		return &coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metadata,
		}
	}
	t.Fatalf("no object of the resource %s is known here", resource)
	return nil
}

func TestEveryKeyThatWeakensADefenceHasAPolicyThatRefusesIt(t *testing.T) {
	for _, key := range Keys() {
		if (key.Weakens == "") == (key.Harmless == "") || (key.Weakens == "") != (key.Policy == "") ||
			(key.Weakens == "") != (len(key.Attacks) == 0) || len(key.Objects) == 0 {
			t.Errorf("%s: it weakens something, with a policy and attacks, or it is harmless: %+v", key.Name, key)
			continue
		}
		if key.Policy == "" {
			continue
		}
		name := key.Name
		if strings.HasSuffix(name, "/") {
			name += "container.main"
		}
		for _, resource := range key.Objects {
			// What a writer of allocations must not write has one of the reserved words in it.
			with := metav1.ObjectMeta{Annotations: map[string]string{name: `{"nodename":"n"}`}}
			if key.Label {
				with = metav1.ObjectMeta{Labels: map[string]string{name: "true"}}
			}
			without := object(t, resource, metav1.ObjectMeta{})
			if resource == "pods" { // which others have
				without = object(t, resource, metav1.ObjectMeta{Annotations: map[string]string{"other": "x"}})
			}
			requests := map[string]request{"writes": {object: object(t, resource, with), old: without}}
			if resource == "bindings" || resource == "leases" {
				requests["writes"] = request{object: object(t, resource, with)}
			}
			if key.Label { // to add it weakens nothing
				requests = map[string]request{"removes": {object: without, old: object(t, resource, with)}}
			}
			for what, r := range requests {
				r.user, r.resource = "ada", resource
				if name == DeviceTaintsAnnotation {
					r.user, r.groups = "system:node:n", []string{"system:nodes"}
				}
				if got := readPolicy(t, key.Policy).refusal(t, r); got == "" || strings.HasPrefix(got, "error") {
					t.Errorf("policy %s, somebody %s %s of %s: refusal %q", key.Policy, what, name, resource, got)
				}
			}
		}
	}
}

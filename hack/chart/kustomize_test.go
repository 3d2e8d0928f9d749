// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// kustomized returns the objects of deploy/kustomize, as kubectl apply -k makes them.
func kustomized(t *testing.T) map[string]unstructured.Unstructured {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		filepath.Join(root, "deploy", "kustomize"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, strings.Split(string(text), "\n---\n"))
}

// decode returns objects by kind, namespace and name. Files of ConfigMaps are decoded, too.
func decode(t *testing.T, texts []string) map[string]unstructured.Unstructured {
	t.Helper()
	objects := map[string]unstructured.Unstructured{}
	for _, text := range texts {
		o := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		files, _, _ := unstructured.NestedMap(o.Object, "data")
		for name, file := range files {
			content := map[string]any{}
			if err := yaml.Unmarshal([]byte(file.(string)), &content); err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedField(o.Object, content, "data", name); err != nil {
				t.Fatal(err)
			}
		}
		objects[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o
	}
	return objects
}

// sum is what kustomize adds to the names of the ConfigMaps that it makes.
var sum = regexp.MustCompile(`(kubedevice-node|kubedevice-scheduler-configuration)-[0-9a-z]{10}\b`)

// The one that kustomize makes is the one that Helm installs, but for what is Helm's alone: hooks,
// labels, and the way in which a changed configuration replaces pods.
func TestTheKustomizationIsWhatTheChartInstallsByDefault(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(c, kustomizeVersion, "{}")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, o := range rendered {
		if !strings.Contains(o.text, "helm.sh/hook:") {
			texts = append(texts, o.text)
		}
	}
	want, got := map[string]any{}, map[string]any{}
	for name, o := range decode(t, texts) {
		withoutHelm(&o)
		want[name] = o.Object
	}
	for name, o := range kustomized(t) {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		plain := map[string]any{}
		if err := yaml.Unmarshal(sum.ReplaceAll(text, []byte("$1")), &plain); err != nil {
			t.Fatal(err)
		}
		got[sum.ReplaceAllString(name, "$1")] = plain
	}
	// A release's namespace is not the chart's. Its pods on nodes must be admitted.
	const namespace = "Namespace /kubedevice-system"
	level, _, _ := unstructured.NestedString(got[namespace].(map[string]any), "metadata", "labels",
		"pod-security.kubernetes.io/enforce")
	if level != "privileged" {
		t.Errorf("the namespace admits pods that are %q, want privileged ones", level)
	}
	delete(got, namespace)
	// The chart says what is the default with a key.
	const scheduler = "Deployment kubedevice-system/kubedevice-scheduler"
	containers, _, _ := unstructured.NestedSlice(want[scheduler].(map[string]any), "spec", "template", "spec",
		"containers")
	container := containers[0].(map[string]any)
	container["args"] = slices.DeleteFunc(container["args"].([]any), func(arg any) bool {
		return arg == "--device-seal-mode=enforce"
	})
	if err := unstructured.SetNestedSlice(want[scheduler].(map[string]any), containers, "spec", "template", "spec",
		"containers"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deploy/kustomize is not what the chart installs (-chart +kustomize):\n%s", diff)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
)

func TestManifestsAreLintedAlsoWhenTheClusterCannotBeRead(t *testing.T) {
	f := newFixture(zoo(t)...)
	f.client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
	})
	stdout, stderr, status := f.run(t.Context(), "lint -f testdata/lint/workloads.yaml")
	if !strings.Contains(stdout, `workloads.yaml:23:60: error: `) || status != 2 ||
		!strings.Contains(stderr, "kubectl auth can-i list nodes") || !strings.Contains(stderr, "--offline") {
		t.Errorf("exit status %d, %s%s", status, stdout, stderr)
	}
}

// A user's first manifest is one of these.
func TestExamplesHaveNoMistakes(t *testing.T) {
	const directory = "../../../deploy/examples"
	stdout, stderr, status := newFixture().run(t.Context(), "lint --offline --strict -f "+directory)
	if stdout+stderr != "" || status != 0 {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	for _, name := range []string{"pair", "best-pair", "two-pairs", "share", "hami", "kai"} {
		f := newFixture(newNode(t, "node-1", gpus(8)))
		stdout, stderr, status := f.run(t.Context(), "lint --strict -f "+directory+"/"+name+".yaml")
		if stdout+stderr != "" || status != 0 {
			t.Errorf("on nodes with GPUs: exit status %d: %s%s", status, stdout, stderr)
		}
	}
}

func TestAManifestIsReadFromStandardInput(t *testing.T) {
	content, err := os.ReadFile("testdata/lint/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	to := genericiooptions.IOStreams{In: bytes.NewReader(content), Out: &out, ErrOut: &errOut}
	status := newFixture().runTo(t.Context(), "lint --offline -f -", to)
	if want := "<stdin>:23:60: error: "; !strings.Contains(out.String(), want) || status != 1 {
		t.Errorf("exit status %d, %s%s", status, &out, &errOut)
	}
}

func TestDirectoriesAreReadAsKubectlReadsThem(t *testing.T) {
	directory := t.TempDir()
	const wrong = `{"kind": "Pod", "metadata": {"annotations": {"KubeDevice/DeviceInfo": "{"}}}`
	for _, name := range []string{"a.yaml", "b.json", "c.txt", "below/d.yml"} {
		path := filepath.Join(directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(wrong), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for flags, want := range map[string]string{"": "a.yaml b.json", "-R": "a.yaml b.json below/d.yml"} {
		stdout, stderr, _ := newFixture().run(t.Context(), "lint --offline "+flags+" -f "+directory)
		var got []string
		for line := range strings.Lines(stdout) {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, directory+string(filepath.Separator)), ":")
			got = append(got, filepath.ToSlash(name))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("lint %s: %q, want %q %s", flags, got, want, stderr)
		}
	}
	path := filepath.Join(directory, "c.txt")
	if stdout, _, _ := newFixture().run(t.Context(), "lint --offline -f "+path); !strings.HasPrefix(stdout, path) {
		t.Errorf("a file that is named: %s", stdout)
	}
}

func TestWarningsAloneFailOnlyWithStrict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pod.yaml")
	const warning = `{"kind": "Pod", "metadata": {"annotations": {"KubeDevice/DeviceInfo": "{\"request\": {}}"}}}`
	if err := os.WriteFile(path, []byte(warning), 0o644); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]int{"": 0, "--strict": 1, "-o json": 0, "-o json --strict": 1} {
		stdout, _, status := newFixture().run(t.Context(), "lint --offline "+flags+" -f "+path)
		if status != want || !strings.Contains(stdout, "warning") {
			t.Errorf("lint %s: exit status %d, want %d: %s", flags, status, want, stdout)
		}
	}
}

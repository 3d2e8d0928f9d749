// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKeysOfSealsAreMadeInADirectoryAndInTheCluster(t *testing.T) {
	f := newFixture()
	directory := filepath.Join(t.TempDir(), "keys")
	for _, step := range []struct {
		line   string
		status int
		want   string // on either output
	}{
		{"seal-keys rotate " + directory, 1, "make it with kubectl device seal-keys create"},
		{"seal-keys create " + directory, 0, "signs"},
		{"seal-keys create " + directory, 1, "add one with kubectl device seal-keys rotate"},
		{"seal-keys ensure -n team --existing", 1, "make it with kubectl device seal-keys create and list"},
		{"seal-keys ensure -n team", 0, "is made"},
		{"seal-keys ensure -n team", 0, "is kept"},
		{"seal-keys list " + directory + " -n team -o yaml", 0, "namespace: team"},
	} {
		stdout, stderr, status := f.run(t.Context(), step.line)
		if status != step.status || !strings.Contains(stdout+stderr, step.want) {
			t.Errorf("%s: exit status %d, want %d; it prints\n%s%s\nwithout %q", step.line, status, step.status, stdout,
				stderr, step.want)
		}
	}
	secrets := f.client.CoreV1().Secrets("team")
	if _, err := secrets.Get(t.Context(), "kubedevice-seal-key", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

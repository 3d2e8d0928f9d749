// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package keycommand

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestEnsureMakesAKeyOnceAndKeepsIt(t *testing.T) {
	o := keyObjects{namespace: "system", secret: "key", configMap: "certificates"}
	client := fake.NewClientset().CoreV1()
	ensure := func(want string) string {
		t.Helper()
		var out strings.Builder
		err := o.ensure(t.Context(), client, &out)
		if said := out.String(); err == nil && strings.Contains(said, want) && want != "" {
			return said
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v and %q, want %q", err, &out, want)
		}
		return err.Error()
	}
	secrets, configMaps := client.Secrets("system"), client.ConfigMaps("system")
	o.existing = true
	ensure("Secret system/key does not exist")
	o.existing = false
	ensure("is made")
	made, err := secrets.Get(t.Context(), "key", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ensure("is kept")
	o.existing = true
	ensure("is kept")
	o.existing = false

	// ensure makes missing certificates from the key.
	if err := configMaps.Delete(t.Context(), "certificates", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ensure("is made again from Secret system/key")
	ensure("is kept")
	now, err := secrets.Get(t.Context(), "key", metav1.GetOptions{})
	if diff := cmp.Diff(made, now); err != nil || diff != "" {
		t.Errorf("the key has changed: %v\n%s", err, diff)
	}

	// ensure does not replace a lost key: nodes would refuse pods that wait with its seal.
	if err := secrets.Delete(t.Context(), "key", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ensure("the key is lost: ConfigMap system/certificates has its certificate")

	// Nor does it replace one that does not match.
	other := fake.NewClientset().CoreV1()
	if err := o.create(t.Context(), other, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Secrets("system").Get(t.Context(), "key", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	foreign.ResourceVersion = ""
	if _, err := secrets.Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ensure("lacks the certificate of the key")
	foreign.Data = map[string][]byte{privateKeysFile: []byte("garbage")}
	if _, err := secrets.Update(t.Context(), foreign, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	ensure("Secret system/key: private.pem")
	if _, err := configMaps.Update(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "certificates"},
	}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package keycommand

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/apis/certificates"
	conversion "k8s.io/kubernetes/pkg/apis/certificates/v1"
	"k8s.io/kubernetes/pkg/apis/certificates/validation"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

// sealKeys runs the command of a program, without a cluster.
func sealKeys(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	program := &cobra.Command{Use: "program", SilenceErrors: true, SilenceUsage: true}
	program.AddCommand(New(func() (corev1client.CoreV1Interface, error) { return nil, errors.New("no cluster") }))
	program.SetArgs(append([]string{"seal-keys"}, args...))
	program.SetOut(&out)
	err := program.ExecuteContext(t.Context())
	return out.String(), err
}

func mustSealKeys(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sealKeys(t, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

func TestKeysAreMadeRotatedAndPruned(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "keys")
	private, public := filepath.Join(directory, privateKeysFile), filepath.Join(directory, certificatesFile)
	mustSealKeys(t, "create", directory)
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", private, info.Mode(), err)
	}
	scheduler, err := seal.OpenPrivateKeys(private)
	if err != nil {
		t.Fatal(err)
	}
	node, err := seal.OpenCertificates(public)
	if err != nil {
		t.Fatal(err)
	}
	decision := seal.Decision{UID: "u", Namespace: "n", Name: "p", Node: "n1", Time: time.Now()}
	first, err := scheduler.Signer().Seal(decision)
	if err != nil {
		t.Fatal(err)
	}
	reload := func() {
		t.Helper()
		for _, file := range []*seal.File{scheduler, node} {
			if changed, err := file.Reload(); err != nil || !changed {
				t.Fatalf("changed %v, %v", changed, err)
			}
		}
	}
	mustSealKeys(t, "rotate", directory)
	reload()
	second, err := scheduler.Signer().Seal(decision)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{first, second} {
		if err := node.Verifier().Verify(text, decision); err != nil {
			t.Error(err)
		}
	}
	if out := mustSealKeys(t, "list", directory); strings.Count(out, "\n") != 3 ||
		!strings.Contains(out, "signs\n") || !strings.Contains(out, "valid\n") {
		t.Errorf("list:\n%s", out)
	}
	mustSealKeys(t, "prune", directory)
	reload()
	if err := node.Verifier().Verify(first, decision); seal.ReasonOf(err) != seal.UnknownKey {
		t.Errorf("the first key after it was pruned: %v", err)
	}
	if err := node.Verifier().Verify(second, decision); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 2 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

func TestErrorsNameTheNextStep(t *testing.T) {
	there, empty, broken := filepath.Join(t.TempDir(), "keys"), t.TempDir(), filepath.Join(t.TempDir(), "keys")
	mustSealKeys(t, "create", there)
	mustSealKeys(t, "create", broken)
	other, err := os.ReadFile(filepath.Join(there, certificatesFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, certificatesFile), other, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"create where keys are":    {[]string{"create", there}, "program seal-keys rotate"},
		"rotate where none are":    {[]string{"rotate", empty}, "program seal-keys create"},
		"prune where none are":     {[]string{"prune", empty}, "program seal-keys create"},
		"a certificate is missing": {[]string{"rotate", broken}, "lacks the certificate"},
		"an unknown format":        {[]string{"list", there, "-o", "json"}, "want table or yaml"},
		"no directory":             {[]string{"prune"}, "name one directory of keys; see program seal-keys prune"},
		"ensure without a cluster": {[]string{"ensure"}, "no cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := sealKeys(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q; output %s", err, test.want, out)
			}
		})
	}
}

func TestPrintsPrivateKeysOnlyAsASecret(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "keys")
	private := func() string {
		text, err := os.ReadFile(filepath.Join(directory, privateKeysFile))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(text), "\n")[1]
	}
	outputs := []string{mustSealKeys(t, "create", directory)}
	outputs = append(outputs, mustSealKeys(t, "rotate", directory), mustSealKeys(t, "list", directory),
		mustSealKeys(t, "list", directory, "-o", "yaml", "--public-only", "--trust-bundle", "seals"))
	for _, out := range outputs {
		if strings.Contains(out, private()) || strings.Contains(out, "PRIVATE") {
			t.Errorf("private keys in:\n%s", out)
		}
	}
	var secret corev1.Secret
	for _, document := range strings.Split(mustSealKeys(t, "list", directory, "-o", "yaml"), "\n---\n") {
		if strings.Contains(document, "kind: Secret") {
			if err := yaml.UnmarshalStrict([]byte(document), &secret); err != nil {
				t.Fatal(err)
			}
		}
	}
	if keys, err := seal.ParsePrivateKeys(secret.Data[privateKeysFile]); err != nil || len(keys) != 2 {
		t.Errorf("the Secret has %d keys, %v", len(keys), err)
	}
}

// The API server's own validation, in the version of this module.
func TestTrustBundleIsValid(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "keys")
	mustSealKeys(t, "create", directory)
	out := mustSealKeys(t, "rotate", directory, "-o", "yaml", "--public-only", "--trust-bundle", "kubedevice-seals")
	for _, document := range strings.Split(out, "\n---\n") {
		if !strings.Contains(document, "kind: ClusterTrustBundle") {
			continue
		}
		var external certificatesv1.ClusterTrustBundle
		if err := yaml.UnmarshalStrict([]byte(document), &external); err != nil {
			t.Fatal(err)
		}
		var bundle certificates.ClusterTrustBundle
		err := conversion.Convert_v1_ClusterTrustBundle_To_certificates_ClusterTrustBundle(&external, &bundle, nil)
		if err != nil {
			t.Fatal(err)
		}
		errs := validation.ValidateClusterTrustBundle(&bundle, validation.ValidateClusterTrustBundleOptions{})
		if len(errs) > 0 {
			t.Error(errs)
		}
		return
	}
	t.Errorf("no ClusterTrustBundle in:\n%s", out)
}

func TestKeysStateTheSealModeInBothFilesAndAllObjects(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "keys")
	check := func(want seal.Mode) {
		t.Helper()
		for _, name := range []string{privateKeysFile, certificatesFile} {
			text, err := os.ReadFile(filepath.Join(directory, name))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := seal.StatedMode(text); err != nil || got != want {
				t.Errorf("%s states %q, %v; want %q", name, got, err, want)
			}
		}
	}
	mustSealKeys(t, "create", directory)
	check("")
	if out, err := sealKeys(t, "set-mode", directory); err == nil || !strings.Contains(err.Error(), "--seal-mode") {
		t.Errorf("without a mode: %s, %v", out, err)
	}
	if out, err := sealKeys(t, "set-mode", directory, "--seal-mode=no"); err == nil {
		t.Errorf("an unknown mode: %s", out)
	}
	if out := mustSealKeys(t, "set-mode", directory, "--seal-mode=warn"); !strings.Contains(out, "cluster: warn") {
		t.Errorf("the table lacks the mode:\n%s", out)
	}
	check(seal.Warn)
	mustSealKeys(t, "rotate", directory)
	check(seal.Warn)
	mustSealKeys(t, "prune", directory, "--seal-mode=enforce")
	check(seal.Enforce)

	var bundle certificatesv1.ClusterTrustBundle
	manifests := mustSealKeys(t, "list", directory, "-o", "yaml", "--trust-bundle=seals", "--seal-mode=off")
	check(seal.Enforce)
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		var object struct {
			Kind string
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		text := object.Data[certificatesFile]
		switch object.Kind {
		case "ClusterTrustBundle":
			if err := yaml.UnmarshalStrict([]byte(document), &bundle); err != nil {
				t.Fatal(err)
			}
			text = bundle.Spec.TrustBundle
		case "Secret":
			private, err := base64.StdEncoding.DecodeString(object.Data[privateKeysFile])
			if err != nil {
				t.Fatal(err)
			}
			text = string(private)
		}
		if got, err := seal.StatedMode([]byte(text)); err != nil || got != seal.Off {
			t.Errorf("%s states %q, %v", object.Kind, got, err)
		}
	}
	var internal certificates.ClusterTrustBundle
	if err := conversion.Convert_v1_ClusterTrustBundle_To_certificates_ClusterTrustBundle(
		&bundle, &internal, nil); err != nil {
		t.Fatal(err)
	}
	options := validation.ValidateClusterTrustBundleOptions{}
	if errs := validation.ValidateClusterTrustBundle(&internal, options); len(errs) > 0 {
		t.Errorf("the API server would refuse the bundle: %v", errs)
	}
}

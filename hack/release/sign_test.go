// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

func generateKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func TestKeysAreReadAsCosignHasThem(t *testing.T) {
	key := generateKey(t)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	sec1, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	locked, err := encrypted.Encrypt(pkcs8, []byte("secret"))
	must(t, err)
	_, other, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	ed25519, err := x509.MarshalPKCS8PrivateKey(other)
	must(t, err)
	for name, test := range map[string]struct {
		kind     string
		content  []byte
		password string
		want     string
	}{
		"PKCS#8":                       {kind: "PRIVATE KEY", content: pkcs8},
		"SEC 1":                        {kind: "EC PRIVATE KEY", content: sec1},
		"encrypted by cosign":          {kind: "ENCRYPTED SIGSTORE PRIVATE KEY", content: locked, password: "secret"},
		"encrypted by an older cosign": {kind: "ENCRYPTED COSIGN PRIVATE KEY", content: locked, password: "secret"},
		"without the password": {
			kind: "ENCRYPTED SIGSTORE PRIVATE KEY", content: locked, want: "set COSIGN_PASSWORD",
		},
		"with another password": {
			kind: "ENCRYPTED SIGSTORE PRIVATE KEY", content: locked, password: "guess", want: "decrypt it",
		},
		"of another kind":   {kind: "PRIVATE KEY", content: ed25519, want: "want ECDSA on the curve P-256"},
		"no private key":    {kind: "CERTIFICATE", content: pkcs8, want: "unknown private key"},
		"not in PEM format": {want: "not in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte("a key\n")
			if test.kind != "" {
				text = pem.EncodeToMemory(&pem.Block{Type: test.kind, Bytes: test.content})
			}
			file := filepath.Join(t.TempDir(), "key")
			must(t, os.WriteFile(file, text, 0o600))
			got, err := readKey(file, test.password)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("the error is %v, want %q", err, test.want)
				}
				return
			}
			if err != nil || !got.Equal(key) {
				t.Errorf("it is read as %v, %v", got, err)
			}
		})
	}
}

func TestFilesThatAreNotThoseOfTheReleaseAreFound(t *testing.T) {
	const some = "RELEASE_NOTES.md"
	for name, test := range map[string]struct {
		change func(t *testing.T, dir string) // nil if nothing is wrong
		want   string
	}{
		"nothing was changed": {},
		"only some were downloaded": {change: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, some)))
		}},
		"a file was changed": {change: func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, some), "others\n")
		}, want: some + " has the checksum"},
		"a file was added": {change: func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "more.tar.gz"), "more\n")
		}, want: "more.tar.gz is no file of the release"},
		"a file and its checksum were changed": {change: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, signatureName)))
			must(t, os.Remove(filepath.Join(dir, publicName)))
			other := &release{out: dir, key: generateKey(t)}
			writeFile(t, filepath.Join(dir, some), "others\n")
			must(t, os.Remove(filepath.Join(dir, sumsName)))
			must(t, other.seal())
		}, want: "not signed with this key"},
		"the signature is missing": {change: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, signatureName)))
		}, want: signatureName},
	} {
		t.Run(name, func(t *testing.T) {
			r := &release{out: t.TempDir(), key: generateKey(t)}
			writeFile(t, filepath.Join(r.out, some), "notes\n")
			writeFile(t, filepath.Join(r.out, "kubecri"), "a program\n")
			must(t, r.seal())
			public, err := os.ReadFile(filepath.Join(r.out, publicName))
			must(t, err)
			if test.change != nil {
				test.change(t, r.out)
			}
			_, err = verify(r.out, public)
			failed := err != nil && strings.Contains(err.Error(), test.want)
			if test.want == "" && err != nil || test.want != "" && !failed {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func privatePEM(t *testing.T, numbers ...byte) string {
	t.Helper()
	keys := make([]ed25519.PrivateKey, len(numbers))
	for i, number := range numbers {
		keys[i] = testKey(number)
	}
	text, err := EncodePrivateKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func certificatePEM(t *testing.T, numbers ...byte) string {
	t.Helper()
	certificates := make([]*x509.Certificate, len(numbers))
	for i, number := range numbers {
		certificate, err := NewCertificate(testKey(number), time.Unix(1767225600, 0))
		if err != nil {
			t.Fatal(err)
		}
		certificates[i] = certificate
	}
	return string(EncodeCertificates(certificates))
}

func TestKeysAndCertificatesRoundTrip(t *testing.T) {
	keys, err := ParsePrivateKeys([]byte(privatePEM(t, 1, 2)))
	if err != nil || len(keys) != 2 || !keys[0].Equal(testKey(1)) || !keys[1].Equal(testKey(2)) {
		t.Errorf("private keys: %d, %v", len(keys), err)
	}
	certificates, err := ParseCertificates([]byte("# of the scheduler\n" + certificatePEM(t, 1, 2, 1)))
	if err != nil {
		t.Fatal(err)
	}
	public := CertificateKeys(certificates)
	if len(public) != 3 || !public[0].Equal(publicKey(1)) || !public[1].Equal(publicKey(2)) {
		t.Errorf("certificates: %d keys", len(public))
	}
}

func TestCertificateKeyMayNotSignCertificates(t *testing.T) {
	ca, err := NewCertificate(testKey(1), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"kubernetes"}, NotAfter: ca.NotAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, publicKey(2), testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "kubernetes"}); err == nil {
		t.Error("it signed one for a server")
	}
}

func TestParsersRejectInvalidFiles(t *testing.T) {
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(elliptic)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true}
	certificate := func(template *x509.Certificate, public, private any) string {
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}))
	}
	leaf := *template
	leaf.IsCA = false
	private := func(text string) error { _, err := ParsePrivateKeys([]byte(text)); return err }
	public := func(text string) error { _, err := ParseCertificates([]byte(text)); return err }
	key, cert := privatePEM(t, 1), certificatePEM(t, 1)
	for name, test := range map[string]struct {
		parse      func(string) error
		text, want string
	}{
		"an empty file":                        {private, "", "no PEM block"},
		"text":                                 {public, "the keys are elsewhere", "no PEM block"},
		"a truncated file":                     {private, key[:len(key)-10], "cannot be read"},
		"a truncated second key":               {private, key + key[:len(key)-10], "cannot be read"},
		"a certificate among the keys":         {private, key + cert, `it is a "CERTIFICATE"`},
		"a private key among the certificates": {public, cert + key, `it is a "PRIVATE KEY"`},
		"a key of another kind": {
			private, string(pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: der})), "not an Ed25519 key",
		},
		"bytes that are no key": {
			private, string(pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: []byte("x")})), "no PKCS#8 key",
		},
		"bytes that are no certificate": {
			public, string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: []byte("x")})),
			"no certificate",
		},
		"a block with headers": {
			public, string(pem.EncodeToMemory(&pem.Block{
				Type: certificateBlock, Bytes: []byte("x"), Headers: map[string]string{"a": "b"},
			})), "it has headers",
		},
		"a certificate of another kind of key": {
			public, certificate(template, elliptic.Public(), elliptic), "not an Ed25519 key",
		},
		"a certificate of a server": {public, certificate(&leaf, publicKey(1), testKey(1)), "no CA certificate"},
		"a file that is too large":  {public, strings.Repeat(" ", maxFileBytes+1), "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.parse(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReloadReadsAChangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.pem")
	if _, err := OpenPrivateKeys(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("a file that is missing: %v", err)
	}
	write(t, path, "no keys")
	if _, err := OpenPrivateKeys(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("a file that is malformed: %v", err)
	}
	write(t, path, privatePEM(t, 1))
	file, err := OpenPrivateKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	first := file.Verifier()
	sealed := mustSeal(t, file.Signer(), testDecision())
	expect := func(what string, wantChanged, wantErr bool, wantKey byte) {
		t.Helper()
		changed, err := file.Reload()
		if changed != wantChanged || (err != nil) != wantErr {
			t.Errorf("%s: changed %v, error %v", what, changed, err)
		}
		if got := file.Signer().KeyID(); got != KeyID(publicKey(wantKey)) {
			t.Errorf("%s: key %s signs, not key %d", what, got, wantKey)
		}
	}
	expect("the same content", false, false, 1)
	write(t, path, privatePEM(t, 2)[:20])
	expect("malformed", false, true, 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("missing", false, true, 1)
	write(t, path, privatePEM(t, 1))
	expect("unchanged", false, false, 1)
	if file.Verifier() != first {
		t.Error("another verifier for the same keys")
	}
	write(t, path, privatePEM(t, 2, 1))
	expect("rotated", true, false, 2)
	if err := file.Verifier().Verify(sealed, testDecision()); err != nil {
		t.Errorf("a seal of the previous key: %v", err)
	}
	write(t, path, privatePEM(t, 2))
	expect("pruned", true, false, 2)
	if err := file.Verifier().Verify(sealed, testDecision()); ReasonOf(err) != UnknownKey {
		t.Errorf("a seal of a removed key: %v", err)
	}
}

func TestCertificateFileVerifiesButDoesNotSign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certificates.pem")
	write(t, path, certificatePEM(t, 2, 1))
	file, err := OpenCertificates(path)
	if err != nil {
		t.Fatal(err)
	}
	if file.Signer() != nil {
		t.Error("it signs")
	}
	if err := file.Verifier().Verify(mustSeal(t, testSigner(t, 1), testDecision()), testDecision()); err != nil {
		t.Error(err)
	}
}

func TestWatchReportsChangesAndFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certificates.pem")
	write(t, path, certificatePEM(t, 1))
	file, err := OpenCertificates(path)
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		file.Watch(ctx, clk, func(err error) { reports <- err })
	}()
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	write(t, path, certificatePEM(t, 2))
	clk.Step(PollInterval)
	if err := <-reports; err != nil {
		t.Error(err)
	}
	write(t, path, "")
	clk.Step(PollInterval)
	if err := <-reports; err == nil {
		t.Error("no error for a malformed file")
	}
	cancel()
	<-done
	if ids := file.Verifier().KeyIDs(); len(ids) != 1 || ids[0] != KeyID(publicKey(2)) {
		t.Errorf("keys %v", ids)
	}
}

func TestResolveMode(t *testing.T) {
	for _, test := range []struct {
		flag     string
		haveKeys bool
		want     Mode
		wantErr  string
	}{
		{"", false, Off, ""},
		{"", true, Enforce, ""},
		{"off", true, Off, ""},
		{"off", false, Off, ""},
		{"warn", true, Warn, ""},
		{"enforce", true, Enforce, ""},
		{"warn", false, "", "no keys"},
		{"enforce", false, "", "no keys"},
		{"Enforce", true, "", "is no mode"},
	} {
		var mode Mode
		var err error
		if test.flag != "" {
			err = mode.Set(test.flag)
		}
		if err == nil {
			mode, err = mode.Resolve(test.haveKeys)
		}
		switch {
		case test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)):
			t.Errorf("%q with keys %v: error %v, want one with %q", test.flag, test.haveKeys, err, test.wantErr)
		case test.wantErr == "" && (err != nil || mode != test.want):
			t.Errorf("%q with keys %v: %q, %v; want %q", test.flag, test.haveKeys, mode, err, test.want)
		}
	}
}

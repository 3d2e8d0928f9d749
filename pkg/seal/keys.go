// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

const (
	privateKeyBlock  = "PRIVATE KEY"
	certificateBlock = "CERTIFICATE"
)

// KeyID returns the ID of a key: the first 16 hexadecimal digits of the SHA-256 of its
// SubjectPublicKeyInfo in DER.
func KeyID(key ed25519.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // every Ed25519 key has an encoding
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8])
}

// ParsePrivateKeys reads one or more PKCS#8 Ed25519 keys in PEM, the one that signs first.
func ParsePrivateKeys(text []byte) ([]ed25519.PrivateKey, error) {
	var keys []ed25519.PrivateKey
	err := eachBlock(text, privateKeyBlock, func(der []byte) error {
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return errors.New("it is no PKCS#8 key") // the parser's error might quote the key
		}
		key, ok := parsed.(ed25519.PrivateKey)
		if !ok {
			return fmt.Errorf("it is a %T, not an Ed25519 key", parsed)
		}
		keys = append(keys, key)
		return nil
	})
	return keys, err
}

// EncodePrivateKeys writes keys for ParsePrivateKeys.
func EncodePrivateKeys(keys []ed25519.PrivateKey) ([]byte, error) {
	var text bytes.Buffer
	for _, key := range keys {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode private key: %w", err)
		}
		if err := pem.Encode(&text, &pem.Block{Type: privateKeyBlock, Bytes: der}); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// NewCertificate returns a self-signed certificate of the public key of key: a ClusterTrustBundle
// accepts keys only in this form. It is a CA certificate, as the API server requires, but its key
// usage does not allow it to sign certificates. It does not expire.
func NewCertificate(key ed25519.PrivateKey, now time.Time) (*x509.Certificate, error) {
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "KubeDevice seal key " + KeyID(public)},
		NotBefore:             now,
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no expiration
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// ParseCertificates reads one or more certificates of Ed25519 keys in PEM, as NewCertificate makes
// them. It accepts the certificates that the API server accepts in a ClusterTrustBundle, if their
// keys are Ed25519.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	err := eachBlock(text, certificateBlock, func(der []byte) error {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("it is no certificate (%s)", quote(err.Error()))
		}
		if _, ok := certificate.PublicKey.(ed25519.PublicKey); !ok {
			return fmt.Errorf("its key is a %T, not an Ed25519 key", certificate.PublicKey)
		}
		if !certificate.IsCA || !certificate.BasicConstraintsValid {
			return errors.New("it is no CA certificate")
		}
		certificates = append(certificates, certificate)
		return nil
	})
	return certificates, err
}

// EncodeCertificates writes certificates for ParseCertificates.
func EncodeCertificates(certificates []*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, certificate := range certificates {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate.Raw}))
	}
	return text.Bytes()
}

// CertificateKeys returns the keys of certificates from ParseCertificates.
func CertificateKeys(certificates []*x509.Certificate) []ed25519.PublicKey {
	keys := make([]ed25519.PublicKey, len(certificates))
	for i, certificate := range certificates {
		keys[i] = certificate.PublicKey.(ed25519.PublicKey)
	}
	return keys
}

// maxFileBytes is the size of the largest file of keys: enough for hundreds.
const maxFileBytes = 256 << 10

// eachBlock calls read for each PEM block of text. All blocks must be of this kind, and there must
// be at least one. A truncated block is an error; encoding/pem would ignore it.
func eachBlock(text []byte, kind string, read func(der []byte) error) error {
	if len(text) > maxFileBytes {
		return fmt.Errorf("%d bytes, and at most %d are read", len(text), maxFileBytes)
	}
	begun, rest := bytes.Count(text, []byte("-----BEGIN")), text
	if begun == 0 {
		return fmt.Errorf("no PEM block; it needs one or more of type %q", kind)
	}
	for i := 1; i <= begun; i++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return fmt.Errorf("one of %d PEM blocks cannot be read", begun)
		case block.Type != kind:
			return fmt.Errorf("PEM block %d: it is a %s, not a %q", i, quote(block.Type), kind)
		case len(block.Headers) > 0:
			return fmt.Errorf("PEM block %d: it has headers; remove them", i)
		}
		if err := read(block.Bytes); err != nil {
			return fmt.Errorf("PEM block %d: %w", i, err)
		}
	}
	return nil
}

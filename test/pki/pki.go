// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of a test cluster: one authority, and server and client
// certificates from it.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity is how long certificates are good for, before and after they are made: a cluster lives
// for minutes, clocks drift.
const (
	before = time.Hour
	after  = 30 * 24 * time.Hour
)

// Pair is a private key with what goes with it, both PEM: for most a certificate, for a
// service-account key the public key.
type Pair struct{ Public, Private []byte }

// Authority signs certificates. It may be used from several goroutines.
type Authority struct {
	// Certificate is the authority's own, PEM.
	Certificate []byte

	parsed *x509.Certificate
	key    crypto.Signer
}

// NewAuthority makes an authority of this name.
func NewAuthority(name string) (*Authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	return &Authority{Certificate: encode("CERTIFICATE", der), parsed: parsed, key: key}, nil
}

// Client makes a certificate that an API server takes for this user, a member of these groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Server makes a certificate for a server that clients reach by these host names and addresses.
func (a *Authority) Server(names []string, addresses []net.IP) (Pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		DNSNames:    names,
		IPAddresses: addresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *Authority) issue(template *x509.Certificate) (Pair, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := newKey()
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate for %s: %w", template.Subject.CommonName, err)
	}
	der, err := sign(template, a.parsed, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate for %s: %w", template.Subject.CommonName, err)
	}
	private, err := encodeKey(key)
	return Pair{Public: encode("CERTIFICATE", der), Private: private}, err
}

// NewKeyPair makes a bare key pair, such as an API server signs service-account tokens with.
func NewKeyPair() (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	private, err := encodeKey(key)
	return Pair{Public: encode("PUBLIC KEY", public), Private: private}, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-before)
	template.NotAfter = time.Now().Add(after)
	return x509.CreateCertificate(rand.Reader, template, parent, public, key)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

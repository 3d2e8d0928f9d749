// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// readKey returns the private key of a PEM file: PKCS#8, SEC 1, or as cosign writes it, encrypted
// with a password.
func readKey(file, password string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not in PEM")
	}
	var key crypto.PrivateKey
	if strings.HasPrefix(block.Type, "ENCRYPTED ") {
		if password == "" {
			return nil, fmt.Errorf("it is encrypted: set %s", passwordVariable)
		}
		plain, err := encrypted.Decrypt(block.Bytes, []byte(password))
		if err != nil {
			return nil, fmt.Errorf("decrypt it with %s: %w", passwordVariable, err)
		}
		if key, err = x509.ParsePKCS8PrivateKey(plain); err != nil {
			return nil, err
		}
	} else if key, err = cryptoutils.UnmarshalPEMToPrivateKey(text, cryptoutils.SkipPassword); err != nil {
		return nil, err
	}
	usable, ok := key.(*ecdsa.PrivateKey)
	if !ok || usable.Curve != elliptic.P256() {
		return nil, fmt.Errorf("it is a %T: want ECDSA on the curve P-256, which cosign generate-key-pair makes", key)
	}
	return usable, nil
}

// sign signs a content as "cosign sign-blob --key" does. Unlike cosign's, the signature is the same
// each time (RFC 6979), as everything else of a release is. It is verified before it is returned.
func sign(key *ecdsa.PrivateKey, content []byte) (signed, public []byte, err error) {
	digest := sha256.Sum256(content)
	raw, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, nil, err
	}
	if public, err = cryptoutils.MarshalPublicKeyToPEM(key.Public()); err != nil {
		return nil, nil, err
	}
	signed = []byte(base64.StdEncoding.EncodeToString(raw))
	return signed, public, verifySignature(public, signed, content)
}

// verifySignature verifies what sign returns.
func verifySignature(public, signed, content []byte) error {
	key, err := cryptoutils.UnmarshalPEMToPublicKey(public)
	if err != nil {
		return fmt.Errorf("read the public key: %w", err)
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(signed)))
	if err != nil {
		return fmt.Errorf("read the signature: %w", err)
	}
	return verifier.VerifySignature(bytes.NewReader(raw), bytes.NewReader(content))
}

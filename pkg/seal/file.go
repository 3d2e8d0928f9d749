// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// PollInterval is the time between two reads of a file of keys. A mounted ConfigMap or Secret takes
// longer to change.
const PollInterval = 10 * time.Second

// keyPair is the content of a file of keys: without a signer for public keys only.
type keyPair struct {
	signer   *Signer
	verifier *Verifier
	mode     Mode // that the text states, or ""
}

// File is a file of keys that follows changes. While the file is missing or malformed, the previous
// keys stay in use.
type File struct {
	path  string
	parse func([]byte) (keyPair, error)
	keys  atomic.Pointer[keyPair]

	mu      sync.Mutex
	content []byte // source of keys
}

// OpenPrivateKeys reads a file of private keys: see ParsePrivateKeys. Its signer uses the first
// key, its verifier has the public keys of all of them.
func OpenPrivateKeys(path string) (*File, error) {
	return open(path, func(text []byte) (keyPair, error) {
		keys, err := ParsePrivateKeys(text)
		if err != nil {
			return keyPair{}, err
		}
		signer, err := NewSigner(keys[0])
		if err != nil {
			return keyPair{}, err
		}
		public := make([]ed25519.PublicKey, len(keys))
		for i, key := range keys {
			public[i] = key.Public().(ed25519.PublicKey)
		}
		return keyPair{signer: signer, verifier: NewVerifier(public...)}, nil
	})
}

// OpenCertificates reads a file of certificates: see ParseCertificates. It has no signer.
func OpenCertificates(path string) (*File, error) {
	return open(path, func(text []byte) (keyPair, error) {
		certificates, err := ParseCertificates(text)
		if err != nil {
			return keyPair{}, err
		}
		return keyPair{verifier: NewVerifier(CertificateKeys(certificates)...)}, nil
	})
}

func open(path string, parse func([]byte) (keyPair, error)) (*File, error) {
	f := &File{path: path, parse: parse}
	if _, err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Signer returns the signer with the file's first key, or nil for a file of certificates.
func (f *File) Signer() *Signer { return f.keys.Load().signer }

// Verifier returns the verifier with all keys of the file. A change of the file, and nothing else,
// makes a new one.
func (f *File) Verifier() *Verifier { return f.keys.Load().verifier }

// Mode returns the cluster's mode that the file states, or "": see StatedMode.
func (f *File) Mode() Mode { return f.keys.Load().mode }

// Reload reads the file and reports whether its content has changed. An error names the file; the
// previous keys stay in use.
func (f *File) Reload() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := os.ReadFile(f.path)
	if err != nil {
		return false, fmt.Errorf("read seal keys: %w", err)
	}
	if f.keys.Load() != nil && bytes.Equal(content, f.content) {
		return false, nil
	}
	keys, err := f.parse(content)
	if err == nil {
		keys.mode, err = StatedMode(content)
	}
	if err != nil {
		return false, fmt.Errorf("read seal keys: file %s: %w", f.path, err)
	}
	f.content = content
	f.keys.Store(&keys)
	return true, nil
}

// Watch reads the file every PollInterval until the context ends. It calls report for each change
// (with nil) and for each failure.
func (f *File) Watch(ctx context.Context, clk clock.WithTicker, report func(error)) {
	ticker := clk.NewTicker(PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if changed, err := f.Reload(); changed || err != nil {
				report(err)
			}
		}
	}
}

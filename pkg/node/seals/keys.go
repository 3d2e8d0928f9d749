// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seals has the keys by which the node verifies seals (package seal).
//
// The keys come from a file, from a ClusterTrustBundle, or from both, and are read again while
// kubecri runs. A source that is gone or malformed keeps the keys that it gave last: it is never
// the absence of a file or an object that takes a key away, but one without that key.
package seals

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Options name the sources of keys.
type Options struct {
	// Certificates is the path of a PEM file of certificates; empty means that there is none.
	Certificates string
	// TrustBundle is the name of a ClusterTrustBundle; empty means that there is none.
	TrustBundle string
	// Cache is the path of the state file that has the trust bundle while the API server is away.
	Cache string
	// Clock paces the reading of the file; nil means the real one.
	Clock clock.WithTicker
}

// source is what one source of keys gave.
type source struct {
	verifier *seal.Verifier // with the keys that were read last; nil before
	mode     seal.Mode      // that they state, or ""
	err      error          // why the source cannot be read now
}

// Keys are the keys by which the node verifies seals. All methods are safe for concurrent use.
type Keys struct {
	options Options

	mu           sync.Mutex
	file, bundle source
	verifier     *seal.Verifier // with the keys of both; nil while none was read
	changed      chan struct{}  // closed and replaced with verifier

	opened *seal.File      // after NewKeys, only Run uses it
	cache  *statefile.File // after NewKeys, only WatchTrustBundle uses it
}

// errNotListed is the state of a trust bundle before the first answer of the API server.
var errNotListed = errors.New("the API server has not answered yet")

// NewKeys reads the file, and the trust bundle that was cached. See Run and WatchTrustBundle for
// what happens later.
func NewKeys(ctx context.Context, options Options) *Keys {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	k := &Keys{
		options: options, changed: make(chan struct{}),
		cache: &statefile.File{Path: options.Cache, Kind: "sealkeys"},
	}
	if options.Certificates != "" {
		k.readFile(ctx)
	}
	if options.TrustBundle != "" {
		verifier, mode := k.readCache(ctx)
		k.set(ctx, &k.bundle, verifier, mode, k.bundleError(errNotListed))
	}
	return k
}

// Verifier returns the verifier with all keys that are known now. It is another one when they have
// changed, and only then; changed is closed at that moment. While no key is known, it is nil, and
// the error says why.
func (k *Keys) Verifier() (verifier *seal.Verifier, changed <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.verifier == nil {
		return nil, k.changed, fmt.Errorf("the node has no key to verify seals with: %w", k.problem())
	}
	return k.verifier, k.changed, nil
}

// Mode returns the cluster's mode that the known keys state, the stronger one where file and trust
// bundle state two, or "" if none is stated. It changes without the keys, too.
func (k *Keys) Mode() seal.Mode {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file.mode != "" && k.bundle.mode != "" && k.file.mode.StrongerThan(k.bundle.mode) {
		return k.file.mode
	}
	return cmp.Or(k.bundle.mode, k.file.mode)
}

// problem returns why sources cannot be read, in one line. The caller holds mu.
func (k *Keys) problem() error {
	if k.file.err != nil && k.bundle.err != nil {
		return fmt.Errorf("%w; %w", k.file.err, k.bundle.err)
	}
	return cmp.Or(k.file.err, k.bundle.err)
}

// Check returns an error while one of the sources cannot be read, whether keys are known or not.
func (k *Keys) Check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem()
}

// Run reads the file again, every [seal.PollInterval], until ctx is done.
func (k *Keys) Run(ctx context.Context) {
	if k.options.Certificates == "" {
		return
	}
	ticker := k.options.Clock.NewTicker(seal.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			k.readFile(ctx)
		}
	}
}

// readFile reads the file of certificates.
func (k *Keys) readFile(ctx context.Context) {
	var err error
	if k.opened == nil {
		k.opened, err = seal.OpenCertificates(k.options.Certificates)
	} else {
		_, err = k.opened.Reload()
	}
	var verifier *seal.Verifier
	var mode seal.Mode
	if k.opened != nil {
		verifier, mode = k.opened.Verifier(), k.opened.Mode()
	}
	if err != nil {
		err = fmt.Errorf("--seal-certificates: %w", err)
	}
	k.set(ctx, &k.file, verifier, mode, err)
}

// set records what a source gave: nil for the keys that it had before, and their mode.
func (k *Keys) set(ctx context.Context, to *source, verifier *seal.Verifier, mode seal.Mode, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.setLocked(ctx, to, verifier, mode, err)
}

// setLocked is set for a caller that holds mu.
func (k *Keys) setLocked(
	ctx context.Context, to *source, verifier *seal.Verifier, mode seal.Mode, err error,
) {
	logger := klog.FromContext(ctx)
	if err != nil && (to.err == nil || to.err.Error() != err.Error()) && !errors.Is(err, errNotListed) {
		logger.Error(err, "Cannot read the keys of seals; those that were read before stay in use")
	}
	to.err = err
	if verifier != nil && mode != to.mode {
		to.mode = mode
		logger.Info("The keys state another seal mode", logkey.Stated, string(mode))
	}
	if verifier == nil || to.verifier != nil && slices.Equal(verifier.KeyIDs(), to.verifier.KeyIDs()) {
		return
	}
	to.verifier = verifier
	k.verifier = seal.Union(k.file.verifier, k.bundle.verifier)
	close(k.changed)
	k.changed = make(chan struct{})
	logger.Info("Seals are verified with these keys", logkey.Keys, k.verifier.KeyIDs())
}

// cached is the content of the state file.
type cached struct {
	TrustBundle  string `json:"trustBundle"`
	Certificates string `json:"certificates"`
}

// readCache returns a verifier with the keys of the trust bundle in the state file, or nil, and the
// mode that they state.
func (k *Keys) readCache(ctx context.Context) (verifier *seal.Verifier, mode seal.Mode) {
	err := k.cache.Load(func(body []byte) error {
		var content cached
		if err := json.Unmarshal(body, &content); err != nil {
			return err
		}
		if content.TrustBundle != k.options.TrustBundle {
			return nil // that was another one
		}
		var err error
		verifier, mode, err = parse(content.Certificates)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "The cached trust bundle cannot be used; the API server has it")
	}
	return verifier, mode
}

func parse(certificates string) (*seal.Verifier, seal.Mode, error) {
	read, err := seal.ParseCertificates([]byte(certificates))
	if err != nil {
		return nil, "", err
	}
	mode, err := seal.StatedMode([]byte(certificates))
	if err != nil {
		return nil, "", err
	}
	return seal.NewVerifier(seal.CertificateKeys(read)...), mode, nil
}

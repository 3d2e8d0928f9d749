// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Verifier verifies seals with a fixed set of public keys. It is immutable: a cache of its results
// can use its address as the identity of the keys.
type Verifier struct {
	keys map[string]ed25519.PublicKey // by key ID
}

// NewVerifier returns a verifier with these keys. A key may occur more than once. Without keys, no
// seal is valid.
func NewVerifier(keys ...ed25519.PublicKey) *Verifier {
	v := &Verifier{keys: make(map[string]ed25519.PublicKey, len(keys))}
	for _, key := range keys {
		v.keys[KeyID(key)] = key
	}
	return v
}

// Union returns a verifier with the keys of all verifiers. A nil verifier has no keys.
func Union(verifiers ...*Verifier) *Verifier {
	all := NewVerifier()
	for _, v := range verifiers {
		if v != nil {
			maps.Copy(all.keys, v.keys)
		}
	}
	return all
}

// KeyIDs returns the IDs of the keys, in order.
func (v *Verifier) KeyIDs() []string { return slices.Sorted(maps.Keys(v.keys)) }

// Verify checks that text, the value of a pod's annotation KubeDevice/Seal, is the seal of this
// decision. An empty text means a pod without a seal. It ignores want.Time and want.Generation. An
// error is of type *Error and names the pod.
//
// It takes some 100 µs: cache the result for a pod.
func (v *Verifier) Verify(text string, want Decision) error {
	_, err := v.Generation(text, want)
	return err
}

// Generation is Verify, and returns the generation in the seal.
func (v *Verifier) Generation(text string, want Decision) (int64, error) {
	invalid := func(reason Reason, problem, fix string) (int64, error) {
		return 0, &Error{Reason: reason, Pod: want.pod(), Problem: problem, Fix: fix}
	}
	got, err := v.Open(text)
	if err != nil {
		var because *Error
		errors.As(err, &because)
		return invalid(because.Reason, because.Problem, because.Fix)
	}
	switch {
	case got.UID != want.UID || got.Namespace != want.Namespace || got.Name != want.Name:
		return invalid(OtherPod,
			fmt.Sprintf("the seal is for pod %s with UID %s, not for UID %s", quote(got.pod()), quote(string(got.UID)),
				quote(string(want.UID))), createAgain)
	case got.Node != want.Node:
		return invalid(OtherNode, fmt.Sprintf("the seal is for node %s, not %s", quote(got.Node), quote(want.Node)),
			createAgain)
	case got.Allocation != want.Allocation:
		return invalid(OtherAllocation, "the seal is for another allocation than the one of the pod", createAgain)
	}
	return got.Generation, nil
}

// Open verifies the signature of a seal and returns its decision. An error is of type *Error.
func (v *Verifier) Open(text string) (Decision, error) {
	invalid := func(reason Reason, fix, problem string, details ...any) (Decision, error) {
		return Decision{}, &Error{Reason: reason, Problem: fmt.Sprintf(problem, details...), Fix: fix}
	}
	switch {
	case text == "":
		return invalid(Missing, createAgain, "the allocation has no seal")
	case len(text) > MaxBytes:
		return invalid(Malformed, createAgain, "the seal has %d bytes, and at most %d are read", len(text), MaxBytes)
	case strings.TrimLeft(text, alphabet) != "":
		return invalid(Malformed, createAgain, "the seal has a character that no JWS has")
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return invalid(Malformed, createAgain, "the seal is no JWS with EdDSA (%s)", quote(err.Error()))
	}
	header := signed.Signatures[0].Protected
	if typ, _ := header.ExtraHeaders[jose.HeaderType].(string); typ != Type {
		return invalid(Malformed, createAgain, "the seal's type is %s, not %q", quote(typ), Type)
	}
	if _, critical := header.ExtraHeaders["crit"]; critical {
		return invalid(Malformed, createAgain, "the seal has critical headers, which this release does not know")
	}
	key, known := v.keys[header.KeyID]
	if !known {
		return invalid(UnknownKey, "add the certificate of that key where seals are verified, or "+createAgain,
			"the seal is signed with key %s, and the known keys are %q", quote(header.KeyID), v.KeyIDs())
	}
	content, err := signed.Verify(key)
	if err != nil {
		return invalid(BadSignature, createAgain, "key %q did not sign it", header.KeyID)
	}
	// Base64 has several texts for the same bytes; only one of them is a seal.
	if canonical, err := signed.CompactSerialize(); err != nil || canonical != text {
		return invalid(Malformed, createAgain, "the seal is not in its one canonical form")
	}
	decision, err := decode(content)
	if err != nil {
		return invalid(Malformed, createAgain, "the seal's content cannot be read (%s)", quote(err.Error()))
	}
	return decision, nil
}

// alphabet has the characters of a JWS in compact form.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// Type is the value of the header typ. It separates seals from other texts that a key may sign.
const Type = "kubedevice-seal+jws"

// payload is the JSON of a Decision.
type payload struct {
	UID        types.UID `json:"uid"`
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	Node       string    `json:"node"`
	Allocation string    `json:"allocation"`
	IssuedAt   int64     `json:"iat"`
	Generation int64     `json:"generation,omitempty"`
}

// encode writes the payload of a seal.
func (d Decision) encode() ([]byte, error) {
	for _, part := range []struct{ what, value string }{
		{"UID", string(d.UID)}, {"namespace", d.Namespace}, {"name", d.Name}, {"node", d.Node},
	} {
		if part.value == "" {
			return nil, fmt.Errorf("the pod's %s is empty", part.what)
		}
	}
	if d.Generation < 0 {
		return nil, fmt.Errorf("the generation %d is negative", d.Generation)
	}
	return json.Marshal(payload{
		d.UID, d.Namespace, d.Name, d.Node, d.Allocation.String(), d.Time.Unix(), d.Generation,
	})
}

// decode reads the payload of a seal.
func decode(text []byte) (Decision, error) {
	var read payload
	strict, err := kjson.UnmarshalStrict(text, &read, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(slices.Clone(strict), err)...); err != nil {
		return Decision{}, err
	}
	if read.UID == "" || read.Namespace == "" || read.Name == "" || read.Node == "" {
		return Decision{}, errors.New("uid, namespace, name or node is missing")
	}
	if read.Generation < 0 {
		return Decision{}, fmt.Errorf("the generation %d is negative", read.Generation)
	}
	d := Decision{
		UID: read.UID, Namespace: read.Namespace, Name: read.Name, Node: read.Node, Time: time.Unix(read.IssuedAt, 0),
		Generation: read.Generation,
	}
	digest, err := base64.RawURLEncoding.Strict().DecodeString(read.Allocation)
	if err != nil || len(digest) != len(d.Allocation) {
		return Decision{}, fmt.Errorf("allocation is %s, which is no SHA-256 in base64url", quote(read.Allocation))
	}
	copy(d.Allocation[:], digest)
	return d, nil
}

// Signer makes seals with one key. It is safe for concurrent use.
type Signer struct {
	jws   jose.Signer
	keyID string
}

// NewSigner returns a signer with this key.
func NewSigner(key ed25519.PrivateKey) (*Signer, error) {
	keyID := KeyID(key.Public().(ed25519.PublicKey))
	jws, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: keyID}},
		(&jose.SignerOptions{}).WithType(Type),
	)
	if err != nil {
		return nil, fmt.Errorf("make a signer with key %s: %w", keyID, err)
	}
	return &Signer{jws, keyID}, nil
}

// KeyID returns the ID of the key.
func (s *Signer) KeyID() string { return s.keyID }

// Seal returns the seal of a decision. It returns an error if the decision lacks a name, or if the
// seal would have more than MaxBytes.
func (s *Signer) Seal(d Decision) (string, error) {
	content, err := d.encode()
	if err != nil {
		return "", fmt.Errorf("seal the allocation of pod %q: %w", d.pod(), err)
	}
	signed, err := s.jws.Sign(content)
	if err != nil {
		return "", fmt.Errorf("seal the allocation of pod %q with key %s: %w", d.pod(), s.keyID, err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		return "", fmt.Errorf("seal the allocation of pod %q with key %s: %w", d.pod(), s.keyID, err)
	}
	if len(text) > MaxBytes {
		return "", fmt.Errorf("seal the allocation of pod %q: the seal has %d bytes, and at most %d are read; "+
			"use shorter names", d.pod(), len(text), MaxBytes)
	}
	return text, nil
}

func (d Decision) pod() string { return d.Namespace + "/" + d.Name }

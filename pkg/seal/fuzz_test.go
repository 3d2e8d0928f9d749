// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzOpen: only the text of the seal opens.
func FuzzOpen(f *testing.F) {
	sealed := mustSeal(f, testSigner(f, 1), testDecision())
	verifier := NewVerifier(publicKey(1))
	f.Add(sealed)
	f.Add("")
	f.Add(sealed + "\n")
	f.Add(jws(header("none", Type, KeyID(publicKey(1)), ""), "{}", func([]byte) []byte { return nil }))
	f.Add(jws(header("EdDSA", Type, KeyID(publicKey(1)), `,"crit":["b64"],"b64":false`), "{}", signWith(1)))
	f.Fuzz(func(t *testing.T, text string) {
		decision, err := verifier.Open(text)
		switch {
		case err == nil && text != sealed && decision == testDecision():
			t.Errorf("%q is another text of the same seal", text)
		case err == nil && text != sealed:
			t.Errorf("%q opens as %v", text, decision)
		case err != nil && ReasonOf(err) == "":
			t.Errorf("an error without a reason: %v", err)
		}
	})
}

// FuzzPayload: Open refuses a payload signed with the scheduler's key, or returns a decision that
// Seal accepts.
func FuzzPayload(f *testing.F) {
	content, err := testDecision().encode()
	if err != nil {
		f.Fatal(err)
	}
	signer, verifier := testSigner(f, 1), NewVerifier(publicKey(1))
	good := header("EdDSA", Type, KeyID(publicKey(1)), "")
	f.Add(good, string(content))
	f.Add(good, string(content)+"{}")
	f.Add(good, `{"uid":null,"iat":1e99}`)
	f.Add(header("EdDSA", Type, KeyID(publicKey(1)), `,"alg":"none"`), string(content))
	f.Fuzz(func(t *testing.T, header, payload string) {
		decision, err := verifier.Open(jws(header, payload, signWith(1)))
		if err != nil {
			return
		}
		again, err := verifier.Open(mustSeal(t, signer, decision))
		if err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		if diff := cmp.Diff(decision, again); diff != "" {
			t.Errorf("%q: %s", payload, diff)
		}
	})
}

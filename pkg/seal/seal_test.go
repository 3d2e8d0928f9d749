// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// testKey returns the same key for the same number.
func testKey(number byte) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte{number})
	return ed25519.NewKeyFromSeed(seed[:])
}

func publicKey(number byte) ed25519.PublicKey { return testKey(number).Public().(ed25519.PublicKey) }

func testSigner(t testing.TB, number byte) *Signer {
	t.Helper()
	signer, err := NewSigner(testKey(number))
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func mustSeal(t testing.TB, signer *Signer, d Decision) string {
	t.Helper()
	text, err := signer.Seal(d)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func testAllocation() *sdk.PodInfo {
	return &sdk.PodInfo{
		Name: "train", NodeName: "n1",
		RunningContainers: map[string]sdk.ContainerInfo{
			"main": {
				Requests:     sdk.ResourceList{"nvidia.com/gpu": 1},
				DevRequests:  sdk.ResourceList{"resource/group/gpu/0/cards": 1},
				AllocateFrom: sdk.ResourceLocation{"resource/group/gpu/0/cards": "resource/group/gpu/GPU-a/cards"},
			},
			"log": {},
		},
	}
}

func testDecision() Decision {
	return Decision{
		UID: "7a3c", Namespace: "default", Name: "train", Node: "n1", Allocation: DigestOf(testAllocation()),
		Time: time.Unix(1767225600, 0),
	}
}

func TestSealContainsTheDecision(t *testing.T) {
	text := mustSeal(t, testSigner(t, 1), testDecision())
	verifier := NewVerifier(publicKey(1))
	got, err := verifier.Open(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testDecision(), got); diff != "" {
		t.Error(diff)
	}
	if err := verifier.Verify(text, testDecision()); err != nil {
		t.Error(err)
	}
	timed := testDecision()
	timed.Time = timed.Time.Add(24 * 365 * time.Hour)
	if err := verifier.Verify(text, timed); err != nil {
		t.Errorf("Verify compares the time of a seal: %v", err)
	}
}

func TestSealOmitsTheFirstGeneration(t *testing.T) {
	signer, verifier := testSigner(t, 1), NewVerifier(publicKey(1))
	for _, generation := range []int64{0, 1, 1 << 62} {
		d := testDecision()
		d.Generation = generation
		text := mustSeal(t, signer, d)
		// The caller does not know the generation.
		if got, err := verifier.Generation(text, testDecision()); err != nil || got != generation {
			t.Errorf("generation %d is read as %d, error %v", generation, got, err)
		}
		_, rest, _ := strings.Cut(text, ".")
		content, _, _ := strings.Cut(rest, ".")
		raw, err := base64.RawURLEncoding.DecodeString(content)
		if err != nil {
			t.Fatal(err)
		}
		// A release without generations reads the first generation.
		if named := strings.Contains(string(raw), "generation"); named != (generation > 0) {
			t.Errorf("generation %d: the seal says %s", generation, raw)
		}
	}
	d := testDecision()
	d.Generation = -1
	if text, err := signer.Seal(d); err == nil {
		t.Errorf("a negative generation is sealed: %s", text)
	}
	text := jws(header("EdDSA", Type, KeyID(publicKey(1)), ""), `{"uid":"7a3c","namespace":"default","name":"train",`+
		`"node":"n1","allocation":"`+testDecision().Allocation.String()+`","iat":1,"generation":-1}`, signWith(1))
	if _, err := verifier.Open(text); ReasonOf(err) != Malformed {
		t.Errorf("a negative generation that is sealed: %v", err)
	}
}

func TestSealTextIsAContract(t *testing.T) {
	// Another implementation must be able to verify it: RFC 7515, RFC 8037.
	text := mustSeal(t, testSigner(t, 1), testDecision())
	parts := strings.Split(text, ".")
	decoded := func(part string) map[string]any {
		t.Helper()
		raw, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		return fields
	}
	if diff := cmp.Diff(map[string]any{
		"alg": "EdDSA", "kid": KeyID(publicKey(1)), "typ": "kubedevice-seal+jws",
	}, decoded(parts[0])); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{
		"uid": "7a3c", "namespace": "default", "name": "train", "node": "n1", "iat": 1767225600.0,
		"allocation": "S_qg6k6cXr2iCFoNNS1k8OL6DEK1D9-E6i7kfc8Ul7U",
	}, decoded(parts[1])); diff != "" {
		t.Error(diff)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !ed25519.Verify(publicKey(1), []byte(parts[0]+"."+parts[1]), signature) {
		t.Errorf("the signature is not that of the first two parts (%v)", err)
	}
}

func TestSealIsValidForOnePodNodeAndAllocation(t *testing.T) {
	text := mustSeal(t, testSigner(t, 1), testDecision())
	for name, test := range map[string]struct {
		change func(*Decision)
		want   Reason
	}{
		"another pod of the same name": {func(d *Decision) { d.UID = "8b4d" }, OtherPod},
		"a pod of another namespace":   {func(d *Decision) { d.Namespace = "tenant" }, OtherPod},
		"a pod of another name":        {func(d *Decision) { d.Name = "steal" }, OtherPod},
		"another node":                 {func(d *Decision) { d.Node = "n2" }, OtherNode},
		"another allocation":           {func(d *Decision) { d.Allocation[31] ^= 1 }, OtherAllocation},
	} {
		t.Run(name, func(t *testing.T) {
			want := testDecision()
			test.change(&want)
			err := NewVerifier(publicKey(1)).Verify(text, want)
			if got := ReasonOf(err); got != test.want {
				t.Fatalf("reason %q (%v), want %q", got, err, test.want)
			}
			if !strings.Contains(err.Error(), want.pod()) {
				t.Errorf("the error does not name the pod: %v", err)
			}
		})
	}
}

// jws returns a JWS with any header and payload, signed by sign.
func jws(header, payload string, sign func(input []byte) []byte) string {
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(payload))
	return input + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(input)))
}

func signWith(number byte) func([]byte) []byte {
	return func(input []byte) []byte { return ed25519.Sign(testKey(number), input) }
}

func header(alg, typ, kid, more string) string {
	return fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":%q%s}`, alg, kid, typ, more)
}

func TestVerifyRejectsInvalidSeals(t *testing.T) {
	kid := KeyID(publicKey(1))
	content, err := testDecision().encode()
	if err != nil {
		t.Fatal(err)
	}
	good := header("EdDSA", Type, kid, "")
	ours := func(header, payload string) string { return jws(header, payload, signWith(1)) }
	headed := func(alg, typ, kid, more string) string { return ours(header(alg, typ, kid, more), string(content)) }
	plain := func(format string, values ...any) string {
		return ours(fmt.Sprintf(format, values...), string(content))
	}
	digest42 := strings.Repeat("A", 42) // 252 of 256 bits
	theirs := header("EdDSA", Type, KeyID(publicKey(9)), "")
	unsigned := func([]byte) []byte { return nil }
	sealed := ours(good, string(content))
	replace := func(before, after string) string { return strings.Replace(string(content), before, after, 1) }
	field := func(name, value string) string {
		fields := map[string]any{}
		if err := json.Unmarshal(content, &fields); err != nil {
			t.Fatal(err)
		}
		fields[name] = value
		changed, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return string(changed)
	}
	for name, test := range map[string]struct {
		text string
		want Reason
	}{
		"nothing":         {"", Missing},
		"a word":          {"seal", Malformed},
		"the seal itself": {sealed, ""},
		"a seal with a field of a later release": {
			ours(good, replace("{", `{"slice":{"a":[1]},`)), "",
		},
		"a header of a later release":  {headed("EdDSA", Type, kid, `,"zip":"no"`), ""},
		"alg none without a signature": {jws(header("none", Type, kid, ""), string(content), unsigned), Malformed},
		"alg none with a signature":    {headed("none", Type, kid, ""), Malformed},
		"HS256 with the public key": {
			jws(header("HS256", Type, kid, ""), string(content), func(input []byte) []byte {
				mac := hmac.New(sha256.New, publicKey(1))
				mac.Write(input)
				return mac.Sum(nil)
			}), Malformed,
		},
		"no alg":                        {plain(`{"kid":%q,"typ":%q}`, kid, Type), Malformed},
		"two algs":                      {headed("EdDSA", Type, kid, `,"alg":"none"`), Malformed},
		"another type":                  {headed("EdDSA", "JWT", kid, ""), Malformed},
		"no type":                       {plain(`{"alg":"EdDSA","kid":%q}`, kid), Malformed},
		"a type that is a number":       {plain(`{"alg":"EdDSA","kid":%q,"typ":1}`, kid), Malformed},
		"a critical header":             {headed("EdDSA", Type, kid, `,"crit":["exp"],"exp":1`), Malformed},
		"a payload that is not encoded": {headed("EdDSA", Type, kid, `,"crit":["b64"],"b64":false`), Malformed},
		"no key ID":                     {headed("EdDSA", Type, "", ""), UnknownKey},
		"a foreign key":                 {jws(theirs, string(content), signWith(9)), UnknownKey},
		"a key that comes with the seal": {
			jws(header("EdDSA", Type, kid, fmt.Sprintf(`,"jwk":{"kty":"OKP","crv":"Ed25519","x":%q}`,
				base64.RawURLEncoding.EncodeToString(publicKey(9)))), string(content), signWith(9)), BadSignature,
		},
		"the ID of a known key, signed with another": {jws(good, string(content), signWith(9)), BadSignature},
		"another signature of a known key":           {sealed[:len(sealed)-86] + strings.Repeat("A", 86), BadSignature},
		"a truncated signature":                      {sealed[:len(sealed)-4], BadSignature},
		"bytes after the signature":                  {sealed + "AAAA", BadSignature},
		"a fourth part":                              {sealed + ".AAAA", Malformed},
		"a line break at the end":                    {sealed + "\n", Malformed},
		"a line break inside":                        {sealed[:10] + "\n" + sealed[10:], Malformed},
		"padding":                                    {sealed + "==", Malformed},
		"the JSON form of a JWS":                     {`{"payload":"","protected":"","signature":""}`, Malformed},
		"more bytes than allowed":                    {strings.Repeat("A", MaxBytes+1), Malformed},
		"a payload that is no JSON":                  {ours(good, "uid"), Malformed},
		"bytes after the payload":                    {ours(good, string(content)+"{}"), Malformed},
		"a field twice":                              {ours(good, replace("{", `{"uid":"other",`)), Malformed},
		"a field in other case":                      {ours(good, replace(`"uid"`, `"UID"`)), Malformed},
		"no node":                                    {ours(good, field("node", "")), Malformed},
		"a digest that is too short":                 {ours(good, field("allocation", "AAAA")), Malformed},
		"a digest with other padding bits":           {ours(good, field("allocation", digest42+"B")), Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			err := NewVerifier(publicKey(1), publicKey(2)).Verify(test.text, testDecision())
			if got := ReasonOf(err); got != test.want || (err == nil) != (test.want == "") {
				t.Errorf("reason %q (%v), want %q", got, err, test.want)
			}
		})
	}
}

func TestVerifyRejectsAnyChangedByte(t *testing.T) {
	sealed := mustSeal(t, testSigner(t, 1), testDecision())
	verifier := NewVerifier(publicKey(1))
	for i := range sealed {
		for _, bit := range []byte{1, 2, 4, 8, 16, 32, 64} {
			changed := []byte(sealed)
			changed[i] ^= bit
			if verifier.Verify(string(changed), testDecision()) == nil {
				t.Errorf("byte %d may be %q instead of %q", i, changed[i], sealed[i])
			}
		}
	}
}

func TestSeveralKeysAreValidAtATime(t *testing.T) {
	old, current := testSigner(t, 1), testSigner(t, 2)
	for name, test := range map[string]struct {
		keys []ed25519.PublicKey
		want map[*Signer]Reason
	}{
		"before":           {[]ed25519.PublicKey{publicKey(1)}, map[*Signer]Reason{old: "", current: UnknownKey}},
		"while it rotates": {[]ed25519.PublicKey{publicKey(2), publicKey(1)}, map[*Signer]Reason{old: "", current: ""}},
		"after":            {[]ed25519.PublicKey{publicKey(2)}, map[*Signer]Reason{old: UnknownKey, current: ""}},
		"without any key":  {nil, map[*Signer]Reason{old: UnknownKey, current: UnknownKey}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[*Signer]Reason{}
			for signer := range test.want {
				sealed := mustSeal(t, signer, testDecision())
				got[signer] = ReasonOf(NewVerifier(test.keys...).Verify(sealed, testDecision()))
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestUnionHasAllKeys(t *testing.T) {
	all := Union(NewVerifier(publicKey(1)), nil, NewVerifier(publicKey(2), publicKey(1)))
	if want := NewVerifier(publicKey(1), publicKey(2)).KeyIDs(); !slices.Equal(all.KeyIDs(), want) {
		t.Errorf("keys %q, want %q", all.KeyIDs(), want)
	}
	if none := Union(nil); len(none.KeyIDs()) != 0 {
		t.Errorf("keys %q of none", none.KeyIDs())
	}
}

func TestSealRejectsInvalidDecisions(t *testing.T) {
	for name, change := range map[string]func(*Decision){
		"a pod without a UID":       func(d *Decision) { d.UID = "" },
		"a pod without a namespace": func(d *Decision) { d.Namespace = "" },
		"a pod without a name":      func(d *Decision) { d.Name = "" },
		"no node":                   func(d *Decision) { d.Node = "" },
		"a name that is too long":   func(d *Decision) { d.Name = strings.Repeat("x", MaxBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			d := testDecision()
			change(&d)
			if text, err := testSigner(t, 1).Seal(d); err == nil {
				t.Errorf("sealed as %q", text)
			}
		})
	}
	long := testDecision()
	long.Namespace, long.Name, long.Node = strings.Repeat("x", 63), strings.Repeat("x", 253), strings.Repeat("x", 253)
	long.UID = "00000000-0000-0000-0000-000000000000"
	if text := mustSeal(t, testSigner(t, 1), long); len(text) > 1300 {
		t.Errorf("with the longest names a seal has %d bytes", len(text))
	}
}

func TestDigestCoversOnlyTheAllocation(t *testing.T) {
	base := DigestOf(testAllocation())
	edit := func(change func(*sdk.ContainerInfo)) func(*sdk.PodInfo) {
		return func(pod *sdk.PodInfo) {
			info := pod.RunningContainers["main"]
			change(&info)
			pod.RunningContainers["main"] = info
		}
	}
	const request, device sdk.ResourceName = "resource/group/gpu/0/cards", "resource/group/gpu/GPU-a/cards"
	for name, test := range map[string]struct {
		change func(*sdk.PodInfo)
		same   bool
	}{
		"the user's requests": {edit(func(info *sdk.ContainerInfo) { info.Requests = nil }), true},
		"the user's scorer": {
			edit(func(info *sdk.ContainerInfo) { info.Scorer = sdk.ResourceScorer{device: 1} }), true,
		},
		"a container without devices": {func(pod *sdk.PodInfo) { delete(pod.RunningContainers, "log") }, true},
		"empty maps": {
			func(pod *sdk.PodInfo) { pod.InitContainers = map[string]sdk.ContainerInfo{} }, true,
		},
		"another device": {
			edit(func(info *sdk.ContainerInfo) {
				info.AllocateFrom = sdk.ResourceLocation{request: "resource/group/gpu/GPU-b/cards"}
			}), false,
		},
		"one device more": {
			edit(func(info *sdk.ContainerInfo) { info.AllocateFrom["resource/group/gpu/1/cards"] = device }), false,
		},
		"more of the device": {
			edit(func(info *sdk.ContainerInfo) { info.DevRequests = sdk.ResourceList{request: 2} }), false,
		},
		"another container": {
			func(pod *sdk.PodInfo) {
				pod.RunningContainers["log"] = pod.RunningContainers["main"]
				delete(pod.RunningContainers, "main")
			}, false,
		},
		"an init container": {
			func(pod *sdk.PodInfo) { pod.InitContainers, pod.RunningContainers = pod.RunningContainers, nil }, false,
		},
		"names that join to the same text": {
			edit(func(info *sdk.ContainerInfo) {
				info.AllocateFrom = sdk.ResourceLocation{request + "r": device[1:]}
			}), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testAllocation()
			test.change(pod)
			if same := DigestOf(pod) == base; same != test.same {
				t.Errorf("the digest is the same: %v, want %v", same, test.same)
			}
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	signer, decision := testSigner(b, 1), testDecision()
	for b.Loop() {
		decision.Allocation = DigestOf(testAllocation())
		mustSeal(b, signer, decision)
	}
}

func BenchmarkVerify(b *testing.B) {
	text, verifier := mustSeal(b, testSigner(b, 1), testDecision()), NewVerifier(publicKey(1))
	for b.Loop() {
		if err := verifier.Verify(text, testDecision()); err != nil {
			b.Fatal(err)
		}
	}
}

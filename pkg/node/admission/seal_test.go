// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/ed25519"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// sealKey returns the same key for the same number.
func sealKey(number byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), number))
}

func publicKey(number byte) ed25519.PublicKey { return sealKey(number).Public().(ed25519.PublicKey) }

// sealed adds the seal of key number to an allocation; change changes what the scheduler decided.
func sealed(
	t testing.TB, number byte, uid string, annotations map[string]string, change func(*seal.Decision),
) map[string]string {
	t.Helper()
	info, err := deviceinfo.DecodePod(annotations[deviceinfo.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	decision := seal.Decision{
		UID: apitypes.UID(uid), Namespace: "default", Name: "pod-" + uid, Node: "node-1",
		Allocation: seal.DigestOf(info),
	}
	if change != nil {
		change(&decision)
	}
	signer, err := seal.NewSigner(sealKey(number))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signer.Seal(decision)
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(annotations)
	all[seal.Annotation] = text
	return all
}

// withSeals makes the fixture look at seals, with key 1 alone, or with none and the error.
func (f *fixture) withSeals(mode seal.Mode, noKeys error) (results, warnings *[]string) {
	s := &fakeSeals{mode: mode, noKeys: noKeys}
	f.Seals, f.notSealed = s, nil
	return &s.results, &f.notSealed
}

// fakeSeals has key 1 alone, or none and the error.
type fakeSeals struct {
	mode    seal.Mode
	noKeys  error
	results []string
}

func (s *fakeSeals) Mode() seal.Mode { return s.mode }

func (s *fakeSeals) Verifier() (*seal.Verifier, error) {
	if s.noKeys != nil {
		return nil, s.noKeys
	}
	return seal.NewVerifier(publicKey(1)), nil
}

func (s *fakeSeals) Observe(result string) { s.results = append(s.results, result) }

func TestADevicePodWithoutAValidSealIsRefusedOrWarned(t *testing.T) {
	const uid = "u1"
	mine := func(t *testing.T) map[string]string {
		return allocation(t, "pod-"+uid, "node-1", map[string][]types.ResourceName{"main": {card0}})
	}
	with := func(number byte, change func(*seal.Decision)) func(*testing.T) map[string]string {
		return func(t *testing.T) map[string]string { return sealed(t, number, uid, mine(t), change) }
	}
	for name, test := range map[string]struct {
		annotations func(*testing.T) map[string]string
		noKeys      error
		result      string
		code        codes.Code // OK: it is valid
		says        string
	}{
		"the scheduler's own": {with(1, nil), nil, "valid", codes.OK, ""},
		"none":                {mine, nil, "missing", codes.FailedPrecondition, "has no seal; delete the pod"},
		"of a key not known":  {with(2, nil), nil, "unknown_key", codes.Unavailable, "add the certificate"},
		"of another pod's UID": {
			with(1, func(d *seal.Decision) { d.UID = "u2" }), nil, "other_pod", codes.FailedPrecondition, "u2",
		},
		"of a namesake": {
			with(1, func(d *seal.Decision) { d.Namespace = "other" }), nil, "other_pod",
			codes.FailedPrecondition, "other/pod-u1",
		},
		"of another node": {
			with(1, func(d *seal.Decision) { d.Node = "node-2" }), nil, "other_node", codes.FailedPrecondition,
			"node-2",
		},
		"of another allocation": {
			func(t *testing.T) map[string]string {
				other := allocation(t, "pod-"+uid, "node-1", map[string][]types.ResourceName{"main": {card1}})
				changed := mine(t)
				changed[seal.Annotation] = sealed(t, 1, uid, other, nil)[seal.Annotation]
				return changed
			}, nil, "other_allocation", codes.FailedPrecondition, "another allocation",
		},
		"that is no seal": {
			func(t *testing.T) map[string]string {
				changed := mine(t)
				changed[seal.Annotation] = "{}"
				return changed
			}, nil, "malformed", codes.FailedPrecondition, "delete the pod",
		},
		"where no key is known": {
			with(1, nil), errors.New("no such file"), "no_keys", codes.Unavailable, "no such file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			enforcing := newFixture(t, true)
			enforcing.pods[uid] = requesting
			results, warnings := enforcing.withSeals(seal.Enforce, test.noKeys)
			_, err := enforcing.create(t, uid, "main", "api", test.annotations(t))
			code := status.Code(err)
			if code != test.code || !slices.Equal(*results, []string{test.result}) {
				t.Errorf("enforce: code %s, results %q (%v); want %s and %q", code, *results, err, test.code,
					test.result)
			}
			if err != nil && (!strings.Contains(err.Error(), test.says) ||
				!strings.Contains(err.Error(), `pod "default/pod-u1"`)) {
				t.Errorf("enforce: %v; want it to name the pod and say %q", err, test.says)
			}
			if granted := enforcing.Grants.Has(uid); granted != (test.code == codes.OK) || len(*warnings) > 0 {
				t.Errorf("enforce: granted %v, warnings %q", granted, *warnings)
			}

			warning := newFixture(t, true)
			warning.pods[uid] = requesting
			results, warnings = warning.withSeals(seal.Warn, test.noKeys)
			config, err := warning.create(t, uid, "main", "api", test.annotations(t))
			if err != nil || len(config.GetDevices()) != 1 || !slices.Equal(*results, []string{test.result}) {
				t.Errorf("warn: %v, %v, results %q; want a device and %q", config, err, *results, test.result)
			}
			warned := len(*warnings) == 1 && strings.Contains((*warnings)[0], test.says)
			if warned != (test.says != "") {
				t.Errorf("warn: warnings %q, want one with %q", *warnings, test.says)
			}
		})
	}
}

func TestSealsAreNotLookedAtWhereTheyAreOff(t *testing.T) {
	for _, mode := range []seal.Mode{"", seal.Off} {
		f := newFixture(t, true)
		f.pods["u1"] = requesting
		results, warnings := f.withSeals(mode, errors.New("must not be asked"))
		annotations := allocation(t, "pod-u1", "node-1", map[string][]types.ResourceName{"main": {card0}})
		if _, err := f.create(t, "u1", "main", "api", annotations); err != nil || len(*results)+len(*warnings) > 0 {
			t.Errorf("mode %q: %v, results %q, warnings %q", mode, err, *results, *warnings)
		}
	}
}

func TestAPodThatWasGrantedDevicesBeforeNeedsNoSeal(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u1"] = requesting
	annotations := allocation(t, "pod-u1", "node-1", map[string][]types.ResourceName{"main": {card0}})
	if _, err := f.create(t, "u1", "main", "api", annotations); err != nil {
		t.Fatal(err)
	}
	results, _ := f.withSeals(seal.Enforce, nil)
	config, err := f.create(t, "u1", "main", "api", annotations)
	if err != nil || len(config.GetDevices()) != 1 || len(*results) > 0 {
		t.Errorf("%v, %v, results %q; want its device again", config, err, *results)
	}
}

func TestPodsWithoutDevicesNeedNoSealAndNoKeys(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u1"] = plain
	results, _ := f.withSeals(seal.Enforce, errors.New("no key"))
	if _, err := f.create(t, "u1", "main", "api", nil); err != nil || len(*results) > 0 {
		t.Errorf("%v, results %q", err, *results)
	}
	if _, err := f.create(t, "static", "main", "file", nil); err != nil || len(*results) > 0 {
		t.Errorf("a static pod: %v, results %q", err, *results)
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seals

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

// fakeKeys state a mode, and none of them is known.
type fakeKeys struct{ mode seal.Mode }

func (k *fakeKeys) Mode() seal.Mode { return k.mode }

func (k *fakeKeys) Verifier() (*seal.Verifier, <-chan struct{}, error) {
	return nil, nil, errors.New("no key is known")
}

// Each cell of flag and stated mode: the node's mode, and whether it conflicts.
func TestNodeTakesTheStatedModeAndReportsAStrongerFlag(t *testing.T) {
	modes := []seal.Mode{"", seal.Off, seal.Warn, seal.Enforce}
	for _, set := range modes {
		for _, stated := range modes {
			want := set
			if set == "" {
				want = stated
			}
			if want == "" {
				want = seal.Enforce
			}
			a := NewAgreement(set, &fakeKeys{stated})
			if got := a.Mode(); got != want {
				t.Errorf("flag %q, keys %q: mode %q, want %q", set, stated, got, want)
			}
			stronger := set == seal.Warn && stated == seal.Off || set == seal.Enforce &&
				(stated == seal.Off || stated == seal.Warn)
			conflict := a.Conflict()
			if (conflict != "") != stronger || stronger && (!strings.Contains(conflict, "--seal-mode="+string(set)) ||
				!strings.Contains(conflict, "set-mode")) {
				t.Errorf("flag %q, keys %q: conflict %q", set, stated, conflict)
			}
		}
	}
}

func TestEnforcingNodeReportsASchedulerThatSealsNothing(t *testing.T) {
	keys := &fakeKeys{seal.Enforce}
	a := NewAgreement("", keys)
	for _, result := range []string{"no_keys", string(seal.OtherPod), string(seal.UnknownKey)} {
		if a.Observe(result); a.Conflict() != "" {
			t.Errorf("after %s: %s", result, a.Conflict())
		}
	}
	a.Observe(string(seal.Missing))
	if got := a.Conflict(); !strings.Contains(got, "--device-seal-key") || !strings.Contains(got, "none of the 1") {
		t.Errorf("conflict %q", got)
	}
	if keys.mode = seal.Warn; a.Conflict() != "" {
		t.Errorf("with the mode warn: %s", a.Conflict())
	}
	keys.mode = seal.Enforce
	if a.Observe("valid"); a.Conflict() != "" {
		t.Errorf("after a valid seal: %s", a.Conflict())
	}
}

func TestConflictIsAnnouncedOnceUntilItEnds(t *testing.T) {
	keys, announced := &fakeKeys{seal.Warn}, 0
	a := NewAgreement(seal.Enforce, keys)
	for i, step := range []struct {
		stated seal.Mode
		want   int
	}{{seal.Warn, 1}, {seal.Warn, 1}, {seal.Enforce, 1}, {seal.Off, 2}, {seal.Warn, 2}} {
		keys.mode = step.stated
		a.announceNew(func(string) { announced++ })
		if announced != step.want {
			t.Errorf("step %d: announced %d times, want %d", i, announced, step.want)
		}
	}
	announcements, running := make(chan string, 1), NewAgreement(seal.Enforce, &fakeKeys{seal.Warn})
	background(t, func(ctx context.Context) {
		running.Run(ctx, clocktesting.NewFakeClock(time.Now()), func(conflict string) { announcements <- conflict })
	})
	if got := <-announcements; !strings.Contains(got, "stronger") {
		t.Errorf("announced %q", got)
	}
}

func TestKeysTellTheModeThatFileAndTrustBundleState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certificates.pem")
	for name, test := range map[string]struct {
		file, bundle, want seal.Mode
	}{
		"neither":             {"", "", ""},
		"the file":            {seal.Warn, "", seal.Warn},
		"the bundle":          {"", seal.Enforce, seal.Enforce},
		"the stronger file":   {seal.Enforce, seal.Warn, seal.Enforce},
		"the stronger bundle": {seal.Off, seal.Warn, seal.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, path, string(test.file.State([]byte(certificates(t, 1)))))
			options := Options{Certificates: path, TrustBundle: "seals", Cache: filepath.Join(t.TempDir(), "cache")}
			k := NewKeys(t.Context(), options)
			text := string(test.bundle.State([]byte(certificates(t, 2))))
			k.take(t.Context(), bundle("seals", text))
			if got := k.Mode(); got != test.want {
				t.Errorf("mode %q, want %q", got, test.want)
			}
			// The next start, without an API server.
			if got := NewKeys(t.Context(), options).Mode(); got != test.want {
				t.Errorf("from the cache: mode %q, want %q", got, test.want)
			}
			// A text that states no mode takes the mode back; one that cannot be read does not.
			k.take(t.Context(), bundle("seals", "# seal-mode: never\n"+certificates(t, 2)))
			if got := k.Mode(); got != test.want {
				t.Errorf("after a malformed bundle: mode %q, want %q", got, test.want)
			}
			k.take(t.Context(), bundle("seals", certificates(t, 2)))
			if got := k.Mode(); got != test.file {
				t.Errorf("without a mode in the bundle: %q, want %q", got, test.file)
			}
		})
	}
}

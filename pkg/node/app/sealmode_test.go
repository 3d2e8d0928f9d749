// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/ed25519"
	"crypto/x509"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

// certificates writes a file of keys of a scheduler, which states the mode warn, and returns its
// path.
func certificates(t *testing.T, dir string) (path string) {
	t.Helper()
	certificate, err := seal.NewCertificate(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text := seal.EncodeCertificates([]*x509.Certificate{certificate})
	return write(t, filepath.Join(dir, "certificates.pem"), string(seal.Warn.State(text)))
}

func TestNodeWithAStrongerSealModeThanItsKeysStateSaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		set      seal.Mode
		conflict bool
	}{
		"the node's own mode": {seal.Enforce, true},
		"the stated mode":     {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			startRuntime(t, filepath.Join(dir, "runtime.sock"))
			options := standalone(dir)
			options.MetricsAddress = freeAddress(t)
			options.SealCertificates = certificates(t, dir)
			options.SealMode = test.set
			begin(t, options)
			url := "http://" + options.MetricsAddress
			ready := eventually(t, url+"/readyz", func(code int, _ string) bool { return code == http.StatusOK })
			says := strings.Contains(ready, "[+]seals ok; the node's --seal-mode=enforce is stronger than the "+
				"cluster's mode warn")
			if says != test.conflict {
				t.Errorf("/readyz:\n%s", ready)
			}
			want := "kubecri_seal_mode_conflict 0"
			if test.conflict {
				want = "kubecri_seal_mode_conflict 1"
			}
			eventually(t, url+"/metrics", func(_ int, body string) bool { return strings.Contains(body, want) })
		})
	}
}

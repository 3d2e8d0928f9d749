// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysStateTheModeOfTheCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.pem")
	for name, test := range map[string]struct {
		text, want string
		mode       Mode
	}{
		"no mode":               {privatePEM(t, 1), "", ""},
		"a mode":                {string(Warn.State([]byte(privatePEM(t, 1)))), "", Warn},
		"a mode after the keys": {privatePEM(t, 1) + "# seal-mode: off\r\n", "", Off},
		"the same mode twice":   {"# seal-mode: warn\n" + privatePEM(t, 1) + "# seal-mode: warn\n", "", Warn},
		"two modes": {
			"# seal-mode: warn\n" + privatePEM(t, 1) + "# seal-mode: off\n", "two seal modes", "",
		},
		"a mode that is unknown": {"# seal-mode: never\n" + privatePEM(t, 1), `"never" is no mode`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, path, test.text)
			file, err := OpenPrivateKeys(path)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				return
			}
			if err != nil || file.Mode() != test.mode || file.Signer().KeyID() != KeyID(publicKey(1)) {
				t.Errorf("mode %q, error %v; want %q", file.Mode(), err, test.mode)
			}
		})
	}
}

func TestReloadReadsTheModeAndKeepsItWithTheKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.pem")
	write(t, path, string(Warn.State([]byte(privatePEM(t, 1)))))
	file, err := OpenPrivateKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "# seal-mode: never\n"+privatePEM(t, 1))
	if _, err := file.Reload(); err == nil || file.Mode() != Warn {
		t.Errorf("a malformed file: mode %q, error %v", file.Mode(), err)
	}
	write(t, path, string(Enforce.State([]byte(privatePEM(t, 1)))))
	if changed, err := file.Reload(); !changed || err != nil || file.Mode() != Enforce {
		t.Errorf("changed %v, mode %q, error %v", changed, file.Mode(), err)
	}
}

func TestModesHaveAnOrder(t *testing.T) {
	order := []Mode{Off, Warn, Enforce}
	for i, a := range order {
		for j, b := range order {
			if got := a.StrongerThan(b); got != (i > j) {
				t.Errorf("%s is stronger than %s: %v", a, b, got)
			}
		}
	}
}

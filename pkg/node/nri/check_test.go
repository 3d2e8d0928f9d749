// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCheckRegistersKubecriWithTheRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		version string // none if no runtime serves NRI
		says    string
	}{
		"a runtime of today":  {version: "2.4.2"},
		"one that is too old": {version: "2.1.4", says: "upgrade it to 2.2 or later"},
		"none":                {says: "NRI is off"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "nri.sock")
			if test.version != "" {
				startRuntimeVersion(t, socket, test.version, true)
			}
			runtime, err := Check(t.Context(), socket, anyList{})
			if test.says == "" && (err != nil || runtime != "containerd "+test.version) {
				t.Errorf("%q, %v", runtime, err)
			}
			if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%q, %v; want an error with %q", runtime, err, test.says)
			}
		})
	}
}

func TestARuntimeThatCannotSendItsListIsNotConnectedTo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	relay := newRelay(t, socket)
	startRuntime(t, relay.runtime, true)
	cause := errors.New("it panics")
	tooLarge := listCheck(func(context.Context) error { return cause })
	if _, err := Check(t.Context(), socket, tooLarge); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if _, err := Check(t.Context(), socket, anyList{}); err != nil {
		t.Error(err)
	}
	if n := relay.connections(); n != 1 {
		t.Errorf("%d connections, want the one of the list that can be sent", n)
	}
}

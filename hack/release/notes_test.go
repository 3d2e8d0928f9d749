// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\nnext\n\n## v1.1.0\n\nnew\n\n### Fixed\n\nmore\n\n" +
		"## [1.0.0] - 2026-01-01\n\nold\n"
	for version, want := range map[string][2]string{
		"v1.1.0": {"v1.1.0", "new\n\n### Fixed\n\nmore"},
		"v1.0.0": {"1.0.0", "old"},
		"v1.2.0": {unreleased, "next"},
	} {
		heading, body, err := section(changelog, version)
		if got := [2]string{heading, body}; err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
}

func TestNotesSayWhatPluginsNeedAndHowToVerify(t *testing.T) {
	r := inputs(t)
	unsigned := written(t, r)["RELEASE_NOTES.md"]
	r.key = generateKey(t)
	signed := written(t, r)["RELEASE_NOTES.md"]
	toolchain, sdkVersion, err := r.hosts()
	must(t, err)
	for _, want := range []string{
		"[Widgets](" + home + "/blob/v1.2.3/docs/widgets.md#new)", "[them](https://example.com)",
		"built by " + toolchain, "tag pkg/sdk/" + sdkVersion, "Revision abc.",
	} {
		if !strings.Contains(signed, want) {
			t.Errorf("they lack %q: %s", want, signed)
		}
	}
	if strings.Contains(signed, "Old.") || strings.Contains(signed, "Later.") {
		t.Errorf("they have another version: %s", signed)
	}
	if !strings.Contains(unsigned, "**unsigned**") || strings.Contains(unsigned, "cosign") {
		t.Errorf("without a key: %s", unsigned)
	}
	if !strings.Contains(signed, "cosign verify-blob --key kubedevice.pub") || strings.Contains(signed, "unsigned") {
		t.Errorf("with a key: %s", signed)
	}
}

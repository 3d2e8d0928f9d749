// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"
)

// What a shell is offered, the directive to it included: 4 means no names of files.
func TestNamesAreCompleted(t *testing.T) {
	objects := zoo(t)
	for line, want := range map[string]string{
		"__complete nodes l":                "large :4",
		"__complete nodes":                  "nodes\tShow the devices of nodes and who holds them :4",
		"__complete top large m":            "mixed :4",
		"__complete nodes large l":          ":4",
		"__complete pods tw":                "twins :4",
		"__complete pods -n ml a":           "asking :4",
		"__complete nodes --output j":       "json yaml name wide :4", // the shell picks those that fit
		"__complete pods pl":                ":4",                     // it has no devices
		"__complete report --node l":        "large :4",
		"__complete top --output n":         "json yaml wide :4",
		"__complete pods -n default big ":   "big :4",
		"__complete whatif big --cordon mi": "mixed :6",
		"__complete whatif big --cordon large/gpu": "large/gpu-0 large/gpu-1 large/gpu-2 large/gpu-3 large/gpu-4 " +
			"large/gpu-5 large/gpu-6 large/gpu-7 :4",
		"__complete cordon large/gpu-1 large/gpu": "large/gpu-0 large/gpu-2 large/gpu-3 large/gpu-4 large/gpu-5 " +
			"large/gpu-6 large/gpu-7 :4",
		"__complete enrol pl":          "plain :4",
		"__complete leave plain l":     ":4",
		"__complete lint -f testdata/": ":0", // files
		"__complete lint --output j":   "json yaml :4",
	} {
		stdout, _, status := newFixture(objects...).run(t.Context(), line)
		if got := strings.Join(strings.Split(strings.TrimSpace(stdout), "\n"), " "); got != want || status != 0 {
			t.Errorf("%s: got %q, exit status %d; want %q", line, got, status, want)
		}
	}
}

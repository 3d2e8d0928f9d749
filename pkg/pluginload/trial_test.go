// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"errors"
	"strings"
	"testing"
)

func TestExitReasonIsTheHeadline(t *testing.T) {
	killed := errors.New("signal: killed")
	tests := map[string]struct {
		exit   error
		stderr string
		want   string
	}{
		"nothing was written":       {killed, "", "signal: killed"},
		"it ended without an error": {nil, "", "exit status 0"},
		"the last line of a log":    {killed, "starting\nno licence\n", "signal: killed: no licence"},
		"a panic, not its stack": {
			killed,
			"starting\npanic: lost\n\ngoroutine 1 [running]:\n",
			"signal: killed: panic: lost",
		},
		"a runtime error, not its stack": {
			killed,
			"fatal error: no plugin module data\n\ngoroutine 1:\n",
			"signal: killed: fatal error: no plugin module data",
		},
		"a signal named by the runtime": {
			killed,
			"SIGBUS: bus error\nPC=0x1 m=0\n",
			"signal: killed: SIGBUS: bus error",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := exitReason(test.exit, test.stderr); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestKeepsOnlyTheEndOfStderr(t *testing.T) {
	var kept tail
	for range 3 {
		if n, err := kept.Write([]byte(strings.Repeat("a", maxStderr) + "z")); n != maxStderr+1 || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if kept.Len() != maxStderr || !strings.HasSuffix(kept.String(), "az") {
		t.Errorf("kept %d bytes", kept.Len())
	}
}

func TestRefusalIsOneShortLine(t *testing.T) {
	line := refuse("report it", "said: %s", strings.Repeat("many\nlines ", 1000)).Error()
	if strings.Contains(line, "\n") || len(line) > maxLine+len("…") {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}

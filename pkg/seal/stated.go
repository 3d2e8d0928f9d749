// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"fmt"
)

// stated begins the line by which a text of keys states the cluster's mode. PEM allows text before
// its blocks, and readers that do not know the line skip it (RFC 7468, section 2).
const stated = "# seal-mode: "

// StatedMode returns the mode of the cluster that a text of keys states, or "" if it states none.
// Private keys and certificates state it alike, so that the scheduler and the nodes agree.
func StatedMode(text []byte) (Mode, error) {
	var found Mode
	for line := range bytes.Lines(text) {
		name, ok := bytes.CutPrefix(line, []byte(stated))
		if !ok {
			continue
		}
		var mode Mode
		if err := mode.Set(string(bytes.TrimSpace(name))); err != nil {
			return "", fmt.Errorf("the line %q: %w", stated, err)
		}
		if found != "" && found != mode {
			return "", fmt.Errorf("it states two seal modes, %s and %s", found, mode)
		}
		found = mode
	}
	return found, nil
}

// State returns the text of keys with the mode stated before them, or the text if the mode is "".
// The text must not state one.
func (m Mode) State(text []byte) []byte {
	if m == "" {
		return text
	}
	return append([]byte(stated+string(m)+"\n"), text...)
}

// StrongerThan reports whether the mode refuses more than another one. Both must be set.
func (m Mode) StrongerThan(other Mode) bool { return m.strength() > other.strength() }

func (m Mode) strength() int {
	switch m {
	case Enforce:
		return 2
	case Warn:
		return 1
	default:
		return 0
	}
}

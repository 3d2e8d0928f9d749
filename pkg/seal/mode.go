// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Mode is the policy for invalid seals. The zero value means unset: see Resolve. A *Mode is the
// value of a flag.
type Mode string

// The modes.
const (
	// Off: seals are not verified.
	Off Mode = "off"
	// Warn: as without seals, but allocations that Enforce would refuse are counted and reported in
	// an event.
	Warn Mode = "warn"
	// Enforce: an allocation without a valid seal has no effect.
	Enforce Mode = "enforce"
)

var _ pflag.Value = (*Mode)(nil)

// Set sets the mode from its name.
func (m *Mode) Set(name string) error {
	switch mode := Mode(name); mode {
	case Off, Warn, Enforce:
		*m = mode
		return nil
	default:
		return fmt.Errorf("%s is no mode: use %s, %s or %s", quote(name), Off, Warn, Enforce)
	}
}

// String returns the name of the mode.
func (m *Mode) String() string { return string(*m) }

// Type returns the name of the value in a flag's help.
func (*Mode) Type() string { return "mode" }

// Resolve returns the effective mode: the set one, or by default Enforce with keys and Off without.
// Warn and Enforce without keys are an error.
func (m Mode) Resolve(haveKeys bool) (Mode, error) {
	switch {
	case m == "" && haveKeys:
		return Enforce, nil
	case m == "":
		return Off, nil
	case m != Off && !haveKeys:
		return "", fmt.Errorf("the seal mode is %q, but there are no keys to verify seals with: name a file of keys, "+
			"or use the mode %q", m, Off)
	default:
		return m, nil
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// The names of runtimes in their Version responses.
const (
	Containerd = "containerd"
	crio       = "cri-o"
)

// firstVersion has the first version of each runtime that reads the CRI's field for CDI devices.
var firstVersion = map[string]*version.Version{
	Containerd: version.MustParseGeneric("1.7"),
	crio:       version.MustParseGeneric("1.27"),
}

// checkVersion returns the reason why a runtime of this name and version ignores CDI devices, or
// nil if it can honour them.
func checkVersion(name, number string) error {
	first, known := firstVersion[name]
	if !known {
		return fmt.Errorf("the container runtime %s is not known to honour CDI devices; use containerd or CRI-O", name)
	}
	have, err := version.ParseGeneric(number)
	if err != nil {
		return fmt.Errorf("%w: the runtime %s says that its version is %q", ErrUnknown, name, number)
	}
	if have.LessThan(first) {
		return fmt.Errorf(
			"the container runtime %s %s ignores CDI devices; upgrade it to %s or later",
			name,
			number,
			first,
		)
	}
	return nil
}

// errDisabled applies to containerd 1.7 by default. From 2.0 on CDI is on by default, and in later
// versions always.
var errDisabled = errors.New(
	"CDI is off in containerd, which ignores CDI devices then; " +
		"set enable_cdi = true in its configuration and restart it",
)

// checkConfig returns the reason why containerd ignores CDI devices with this configuration, which
// is part of its verbose status.
func checkConfig(config string) error {
	var read struct {
		EnableCDI *bool `json:"enableCDI"`
	}
	if err := json.Unmarshal([]byte(config), &read); err != nil {
		return fmt.Errorf("%w: read containerd's configuration: %w", ErrUnknown, err)
	}
	if read.EnableCDI != nil && !*read.EnableCDI {
		return errDisabled
	}
	return nil
}

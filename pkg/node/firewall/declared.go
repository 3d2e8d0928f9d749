// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Vendor declares a vendor that is not built in, as the node's configuration has it.
type Vendor struct {
	// Name is the domain of the vendor's extended resources, such as mthreads.com.
	Name string `json:"name"`
	// Variables are those that its container runtime obeys.
	Variables []Variable `json:"variables,omitempty"`
	// CDIKinds are the kinds (vendor/class) of its CDI devices. In either half, * stands for any
	// characters. Without any they are those of the domain.
	CDIKinds []string `json:"cdiKinds,omitempty"`
	// MountPaths begin the absolute paths in a container at which a mount requests devices.
	MountPaths []string `json:"mountPaths,omitempty"`
	// DeviceFiles are patterns, such as /dev/mtgpu*, of its device files on the node. Without any,
	// each device that a pod names to CRI-O counts as one.
	DeviceFiles []string `json:"deviceFiles,omitempty"`
}

// Variable is an environment variable that a container runtime obeys.
type Variable struct {
	// Name is its name. One that ends with * stands for all that begin so.
	Name string `json:"name"`
	// Nothing is the value by which a container gets no device.
	Nothing string `json:"nothing"`
	// Takes says which counts where several match; empty means TakesLast.
	Takes Takes `json:"takes,omitempty"`
}

// Validate returns why the declaration cannot be obeyed, or nil.
func (v Vendor) Validate() error {
	problems := validation.IsDNS1123Subdomain(v.Name)
	if slices.ContainsFunc(vendors, func(known *vendor) bool { return known.name == v.Name }) {
		problems = append(problems, "this vendor is built in")
	}
	for _, variable := range v.Variables {
		if err := variable.Validate(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	for _, kind := range v.CDIKinds {
		if err := CheckCDIKind(kind); err != nil {
			problems = append(problems, err.Error())
		}
	}
	for _, start := range v.MountPaths {
		if err := CheckMountPath(start); err != nil {
			problems = append(problems, err.Error())
		}
	}
	for _, pattern := range v.DeviceFiles {
		if err := CheckDeviceFile(pattern); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("vendor %q: %s", v.Name, strings.Join(problems, "; "))
	}
	return nil
}

// Validate returns why the variable cannot be overridden, or nil.
func (v Variable) Validate() error {
	name := strings.TrimSuffix(v.Name, "*")
	if problems := validation.IsEnvVarName(name); len(problems) > 0 {
		return fmt.Errorf("variable %q: %s", v.Name, strings.Join(problems, "; "))
	}
	switch v.Takes {
	case "", TakesFirst, TakesLast, TakesAny:
	default:
		return fmt.Errorf("variable %q: takes is %q; want %s, %s or %s", v.Name, v.Takes, TakesFirst, TakesLast,
			TakesAny)
	}
	if strings.ContainsRune(v.Nothing, 0) {
		return fmt.Errorf("variable %q: the value has a byte of 0", v.Name)
	}
	return nil
}

// CheckCDIKind returns why a text is no pattern of kinds of CDI devices, or nil.
func CheckCDIKind(kind string) error {
	if _, err := path.Match(kind, ""); err != nil || strings.Count(kind, "/") != 1 {
		return fmt.Errorf("CDI kind %q is not like vendor.com/class", kind)
	}
	return nil
}

// CheckMountPath returns why a text cannot begin the paths of mounts, or nil.
func CheckMountPath(start string) error {
	if !path.IsAbs(start) || path.Clean(start) != start || start == "/" {
		return fmt.Errorf("mount path %q is not an absolute path in its shortest form", start)
	}
	return nil
}

// errDeviceFile is why a text is no pattern of device files.
var errDeviceFile = errors.New("is not a pattern of an absolute path below /dev in its shortest form")

// CheckDeviceFile returns why a text is no pattern of device files, or nil.
func CheckDeviceFile(pattern string) error {
	if _, err := filepath.Match(pattern, ""); err != nil || !strings.HasPrefix(pattern, "/dev/") ||
		path.Clean(pattern) != pattern {
		return fmt.Errorf("device file %q %w", pattern, errDeviceFile)
	}
	return nil
}

// vendor returns the declaration as a rule.
func (v Vendor) vendor() *vendor {
	rule := &vendor{name: v.Name, cdiKinds: v.CDIKinds, mountPaths: v.MountPaths, devices: v.DeviceFiles}
	for _, variable := range v.Variables {
		takes := variable.Takes
		if takes == "" {
			takes = TakesLast
		}
		rule.readers = append(rule.readers, reader{names: namesOf(variable), takes: takes, nothing: variable.Nothing})
	}
	for _, pattern := range v.DeviceFiles {
		if !strings.ContainsAny(pattern, `*?[\`) {
			rule.files = append(rule.files, pattern)
		}
	}
	return rule
}

// namesOf returns the names of a reader. Of those that begin in one way the beginning itself is
// set.
func namesOf(v Variable) []string {
	if start, isPrefix := strings.CutSuffix(v.Name, "*"); isPrefix {
		return []string{start, v.Name}
	}
	return []string{v.Name}
}

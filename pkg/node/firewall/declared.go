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

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Vendor declares a vendor that is not built in, or further drivers of one that is, as the node's
// configuration has it.
type Vendor struct {
	// Name is the domain of the vendor's extended resources, such as mthreads.com. For a vendor
	// that is built in, only OtherDrivers can be declared.
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
	// OtherDrivers are drivers of resource claims, such as gpu-tools.example.com, that give out CDI
	// devices of these kinds, but no device that is allocated here.
	OtherDrivers []string `json:"otherDrivers,omitempty"`
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
	others := len(v.Variables) + len(v.CDIKinds) + len(v.MountPaths) + len(v.DeviceFiles)
	if indexOf(vendors, v.Name) >= 0 && (others > 0 || len(v.OtherDrivers) == 0) {
		problems = append(problems, "this vendor is built in: declare nothing but its otherDrivers")
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
	for _, driver := range v.OtherDrivers {
		if err := CheckDriver(driver); err != nil {
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

// CheckDriver returns why a text is no name of a driver of resource claims, or nil. The rule is the
// API server's, for the field driver of a ResourceSlice (k8s.io/api/resource/v1).
func CheckDriver(name string) error {
	problems := validation.IsDNS1123Subdomain(strings.ToLower(name))
	if len(name) > resourceapi.DriverNameMaxLength {
		problems = append(problems, validation.MaxLenError(resourceapi.DriverNameMaxLength))
	}
	if len(problems) > 0 {
		return fmt.Errorf("driver %q of resource claims: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// indexOf returns the index of the vendor of that name, or -1.
func indexOf(list []*vendor, name string) int {
	return slices.IndexFunc(list, func(v *vendor) bool { return v.name == name })
}

// vendor returns the declaration as a rule.
func (v Vendor) vendor() *vendor {
	rule := &vendor{
		name: v.Name, cdiKinds: v.CDIKinds, otherDrivers: v.OtherDrivers, mountPaths: v.MountPaths,
		devices: v.DeviceFiles,
	}
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

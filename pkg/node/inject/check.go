// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// allPermissions are what a device can be used for, in the order in which the runtime gets them:
// mknod, read, write.
const allPermissions = "mrw"

// permissionsOf returns the permissions in the order of allPermissions, each once.
func permissionsOf(requested string) (string, error) {
	if requested == "" {
		return allPermissions, nil
	}
	if strings.Trim(requested, allPermissions) != "" {
		return "", fmt.Errorf("permissions %q: want one or more of r, w, m", requested)
	}
	return ordered(requested), nil
}

// ordered returns those of allPermissions that are among the given.
func ordered(permissions string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(permissions, r) {
			return r
		}
		return -1
	}, allPermissions)
}

// checkDeviceNode demands a device node.
func checkDeviceNode(info fs.FileInfo) error {
	if info.Mode()&fs.ModeDevice == 0 {
		return fmt.Errorf("not a device node (%v)", info.Mode())
	}
	return nil
}

// CheckEnv demands a name and a value that a process can be started with and a message to the
// runtime can carry.
func CheckEnv(name, value string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00") || !utf8.ValidString(name):
		return fmt.Errorf("environment variable %q: not a valid name", name)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("environment variable %s: its value has a NUL character", name)
	}
	return nil
}

// OwnAnnotations begin the keys of annotations that only this program sets, in lower case.
const OwnAnnotations = "kubedevice/"

// checkAnnotation demands text that a message to the runtime can have.
func checkAnnotation(key, value string) error {
	if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
		return fmt.Errorf("annotation %q: key and value must be UTF-8 text, and the key not empty", key)
	}
	return nil
}

// checkOwner demands a key of an annotation that is the plugin's to set.
func checkOwner(key string) error {
	for owner, prefix := range map[string]string{"the kubelet": "io.kubernetes.", "KubeDevice": OwnAnnotations} {
		if strings.HasPrefix(strings.ToLower(key), prefix) {
			return fmt.Errorf("only %s may set it", owner)
		}
	}
	return nil
}

// propagationOf returns the propagation in the words of the runtime API.
func propagationOf(p device.Propagation) (runtimeapi.MountPropagation, error) {
	switch p {
	case device.Private:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case device.HostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case device.Bidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("propagation %d is none of Private, HostToContainer, Bidirectional", p)
}

// checkCDI demands a fully qualified CDI device name, vendor/class=name, as CDI's specification 1.1
// defines it.
func checkCDI(name string) error {
	kind, device, qualified := strings.Cut(name, "=")
	vendor, class, _ := strings.Cut(kind, "/")
	if !qualified || !isWord(vendor, "_-.", false) || !isWord(class, "_-.", false) || !isWord(device, "_-.:", true) {
		return errors.New("not a fully qualified name like vendor.com/class=name")
	}
	return nil
}

// isWord reports whether s is letters, digits and, not at its ends, the other characters; the first
// must be a letter unless digitFirst.
func isWord(s, others string, digitFirst bool) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		inside := i > 0 && i < len(s)-1
		if !letter && !(digit && (i > 0 || digitFirst)) && !(inside && strings.IndexByte(others, c) >= 0) {
			return false
		}
	}
	return s != ""
}

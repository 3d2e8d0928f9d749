// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import "fmt"

// CheckSize checks that a pod with these annotations can take value as its KubeDevice/DeviceInfo.
// Kubernetes allows 256 KiB for the keys and values of all annotations of an object, but does not
// check those that come with a Binding: a pod that is bound with more can never be updated again.
func CheckSize(annotations map[string]string, value string) error {
	total := len(Annotation) + len(value)
	for key, other := range annotations {
		if key != Annotation {
			total += len(key) + len(other)
		}
	}
	if total > MaxBytes {
		return &Error{
			Problem: fmt.Sprintf("with the allocation (%d bytes) the pod's annotations have %d bytes",
				len(value), total),
			Fix: fmt.Sprintf("Kubernetes allows %d: remove other annotations or ask for fewer devices", MaxBytes),
		}
	}
	return nil
}

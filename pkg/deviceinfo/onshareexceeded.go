// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import "fmt"

// OnShareExceededAnnotation is the key of the annotation of a pod that says what happens to a
// container of the pod that uses more than its share of a device's memory: Ignore, End or Evict.
// Without it, the node's configuration says so. A namespace permits its pods Ignore by the same
// annotation, with the value Ignore: the admission policy kubedevice-pod-allocations refuses it in
// other namespaces.
const OnShareExceededAnnotation = "KubeDevice/OnShareExceeded"

// The values of OnShareExceededAnnotation.
const (
	OnShareExceededIgnore = "Ignore" // the pod gets an event
	OnShareExceededEnd    = "End"    // and its container is ended, which the kubelet may start again
	OnShareExceededEvict  = "Evict"  // and the pod is evicted
)

// CheckOnShareExceeded returns an error for a value of OnShareExceededAnnotation that is none of
// the three.
func CheckOnShareExceeded(value string) error {
	switch value {
	case OnShareExceededIgnore, OnShareExceededEnd, OnShareExceededEvict:
		return nil
	}
	return fmt.Errorf("%q is none of %s, %s and %s", value, OnShareExceededIgnore, OnShareExceededEnd,
		OnShareExceededEvict)
}

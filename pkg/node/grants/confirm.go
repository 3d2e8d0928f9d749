// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// Confirms reports whether a container of the pod got the value of [Annotation] from kubecri on
// this node. The value proves it by its signature. v0.1.0 signed none: its value counts where the
// checkpoint has the same allocation of the pod, with devices of the container, and v0.1.0 granted
// it, or wrote the checkpoint after that. Anything else may come from the pod, whose annotations a
// runtime may pass to containers, or from an image. An error says that the key was not read yet.
func (c *Checkpoint) Confirms(podUID, namespace, name, container, value string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locked == nil {
		return false, errors.New("the key that signs the containers' annotations was not read yet")
	}
	_, _, err := c.key.verify(subject{podUID, namespace, name, container}, value)
	if !errors.Is(err, errUnsigned) {
		return !errors.Is(err, errForged), nil // also what only a later release can read
	}
	return confirmsUnsigned(c.allocations[podUID], container, value), nil
}

// confirmsUnsigned reports whether v0.1.0 had a container carry the value, as known, which may be
// nil, says what the pod was granted.
func confirmsUnsigned(known *Allocation, container, value string) bool {
	if known == nil || known.Signed || known.Adopted {
		return false
	}
	if part, _ := partOf(known.PodInfo, container); len(part.AllocateFrom) == 0 {
		return false
	}
	whole, err := deviceinfo.EncodePod(known.PodInfo)
	return err == nil && value == whole
}

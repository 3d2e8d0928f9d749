// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// KubeletResources knows the resources of the kubelet. FromKubelet returns those of the node's.
type KubeletResources interface {
	// Resources returns the extended resources that the kubelet knows, each with what it has of
	// them. An error says that they are unknown. It is called at each registration and
	// periodically.
	Resources(ctx context.Context) (map[types.ResourceName]KubeletHolding, error)
}

// KubeletHolding is what the kubelet has of a resource. It is empty for the resource of a plugin
// that has left and that no pod holds a device of.
type KubeletHolding struct {
	// Device is the first ID of the devices that the kubelet would allocate.
	Device string
	// Pod, as namespace/name, is the first that holds a device which the kubelet allocated to it.
	Pod string
	// Placeholder says that the kubelet would allocate a device by which kubecri has it count a
	// resource of plugin files.
	Placeholder bool
}

// conflict is a resource that the kubelet knows, too.
type conflict struct {
	resource types.ResourceName
	KubeletHolding
}

func (c *conflict) Error() string {
	switch {
	case c.Device != "":
		return fmt.Sprintf("resource %s is registered with the kubelet, too, which has its device %s: "+
			"stop the plugin that uses the kubelet's directory, or leave the resource to it", c.resource, c.Device)
	case c.Pod != "":
		return fmt.Sprintf("pod %s holds a device of %s that the kubelet has allocated, and the kubelet would fail "+
			"other pods that request it: it is offered when kubecri has taken the resource over, or the pod is gone",
			c.Pod, c.resource)
	default:
		return fmt.Sprintf("the kubelet still remembers a device plugin of %s, for five minutes after that has left, "+
			"and would fail pods that request it: it is offered when kubecri has taken the resource over, or the "+
			"kubelet has forgotten", c.resource)
	}
}

// ErrConflict says that a resource which is served here is the kubelet's, too, which has this of
// it.
func ErrConflict(resource types.ResourceName, has KubeletHolding) error {
	return &conflict{resource, has}
}

// conflictOf returns the conflict of a resource, or nil.
func conflictOf(resource types.ResourceName, known map[types.ResourceName]KubeletHolding) *conflict {
	has, conflicts := known[resource]
	if !conflicts {
		return nil
	}
	return &conflict{resource, has}
}

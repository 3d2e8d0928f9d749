// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrilist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// named is how many objects an error names.
const named = 3

// Check returns why the runtime cannot send the list to a plugin that registers, with the largest
// objects in it; nil if it can.
func (l List) Check() error {
	cause := l.Sizes().Check()
	if cause == nil {
		return nil
	}
	return fmt.Errorf("the container runtime cannot send its list of %d sandboxes and %d containers to NRI plugins: "+
		"%w. The largest are %s. Delete these pods, or restart those that you have made smaller", len(l.Sandboxes),
		len(l.Containers), cause, strings.Join(l.largest(named), ", "))
}

// largest names the n largest objects.
func (l List) largest(n int) (names []string) {
	type object struct {
		name string
		size nribound.Size
	}
	var all []object
	for _, s := range l.Sandboxes {
		all = append(all, object{fmt.Sprintf("the sandbox of pod %v", s.Pod()), s.Size})
	}
	for _, c := range l.Containers {
		all = append(all, object{fmt.Sprintf("container %q of pod %v", c.Name, l.SandboxOf(c).Pod()), c.Size})
	}
	slices.SortFunc(all, func(a, b object) int { return b.size.Cost() - a.size.Cost() })
	for _, o := range all[:min(n, len(all))] {
		names = append(names, fmt.Sprintf("%s (%v)", o.name, o.size))
	}
	return names
}

// Pod names the sandbox's pod.
func (s Sandbox) Pod() nribound.Pod {
	return nribound.Pod{Namespace: s.GetNamespace(), Name: s.GetName()}
}

// SandboxOf returns the container's sandbox; one without a name if it is gone.
func (l List) SandboxOf(c Container) Sandbox {
	for _, s := range l.Sandboxes {
		if s.GetId() == c.Sandbox {
			return s
		}
	}
	return Sandbox{}
}

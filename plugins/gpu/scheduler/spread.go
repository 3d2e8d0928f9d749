// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// different begins placeholders that stand for different GPUs, as docs/vendors/plugins.md has it.
const different = "!"

// spread has a container that counts n GPUs get that many. Placeholders for cards stand for
// different GPUs, as each has one. One for memory alone may stand for the GPU of another
// placeholder: Kubernetes would count more GPUs than the container has. So n placeholders, those
// for cards first, are marked as different. It returns the names as they were, by the new ones.
func spread(requests types.ResourceList, n int64) (before map[types.ResourceName]types.ResourceName) {
	cards, all := map[string]bool{}, placeholders(requests)
	for name := range requests {
		if _, kind, ok := gpu.Split(name); ok && kind == gpu.Cards {
			cards[device(name, kind)] = true
		}
	}
	if n <= max(1, int64(len(cards))) {
		return nil
	}
	marked := slices.Sorted(maps.Keys(cards))
	for _, placeholder := range slices.Sorted(maps.Keys(all)) {
		if !cards[placeholder] {
			marked = append(marked, placeholder)
		}
	}
	marked = marked[:min(n, int64(len(marked)))]
	before = map[types.ResourceName]types.ResourceName{}
	for _, name := range slices.Collect(maps.Keys(requests)) {
		_, kind, ok := gpu.Split(name)
		if placeholder := device(name, kind); ok && slices.Contains(marked, placeholder) {
			next := types.ResourceName(mark(placeholder, all) + "/" + kind)
			if next != name {
				requests[next], before[next] = requests[name], name
				delete(requests, name)
			}
		}
	}
	return before
}

// mark returns a placeholder that is marked as different, and is none of the others.
func mark(placeholder string, others map[string]bool) string {
	at := strings.LastIndexByte(placeholder, '/') + 1
	if strings.HasPrefix(placeholder[at:], different) {
		return placeholder
	}
	for {
		placeholder = placeholder[:at] + different + placeholder[at:]
		if !others[placeholder] {
			return placeholder
		}
	}
}

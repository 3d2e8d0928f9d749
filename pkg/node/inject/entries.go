// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import "fmt"

// thePod is who put in what the request has already.
const thePod = "the pod"

// entry is what stands at some key already.
type entry[T any] struct {
	value T
	from  string // who put it there, in words
}

// entries are what stands at the keys of one kind.
type entries[T comparable] map[string]entry[T]

// place puts value at key for the plugin. It returns false if the same is there already, and an error if another is.
func (e entries[T]) place(key string, value T, plugin string) (fresh bool, err error) {
	there, taken := e[key]
	switch {
	case !taken:
		e[key] = entry[T]{value, fmt.Sprintf("device plugin %q", plugin)}
		return true, nil
	case there.value == value:
		return false, nil
	default:
		return false, fmt.Errorf("%s has %v there, this plugin wants %v", there.from, there.value, value)
	}
}

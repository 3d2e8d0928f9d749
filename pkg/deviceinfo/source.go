// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// Source has the offsets of the fields of a pod's annotation in its text, and the fields that
// decoding ignores. It is for callers that show the text to its author.
type Source struct {
	// Unknown are the ignored fields, in the order of the text.
	Unknown []UnknownField

	offsets map[string]int
}

// UnknownField is an ignored field.
type UnknownField struct {
	// Field is its path, as in [Error], and Key its name.
	Field, Key string
	// Known are the fields that users may write there.
	Known []string
}

// LocatePod is DecodePod that also returns the offsets of the fields: with an error, of the fields
// before it.
func LocatePod(value string) (*types.PodInfo, *Source, error) {
	source := &Source{offsets: map[string]int{}}
	pod, err := decodePod(value, source)
	return pod, source, err
}

// Offset returns the offset of a field's key in the value, in bytes, for a path as in [Error]. For
// paths with the same shortened text it returns the first one's. It is 0 for an absent field.
func (s *Source) Offset(field string) int { return s.offsets[field] }

// ContainerField returns the path of a container in the list initcontainer or runningcontainer, of
// one of its lists such as requests, and of an entry of that list. It omits an empty list or entry.
func ContainerField(containers, name, list, entry string) string {
	field := entryPath(containers, name)
	if list != "" {
		field = fieldPath(field, list)
	}
	if entry != "" {
		field = entryPath(field, entry)
	}
	return field
}

// RequestField returns the path of a request of a container in the list initcontainer or
// runningcontainer, or of the pod as a whole if the name of the list is empty.
func RequestField(containers, name string, request types.ResourceName) string {
	if containers == "" {
		return entryPath("requests", string(request))
	}
	return ContainerField(containers, name, "requests", string(request))
}

// unknown notes an ignored field.
func (r *reader) unknown(path, key string, known ...string) {
	if r.parts != nil {
		r.parts.Unknown = append(r.parts.Unknown, UnknownField{Field: path, Key: key, Known: known})
	}
}

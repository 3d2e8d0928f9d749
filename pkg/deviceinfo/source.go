// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// Source is where the fields of a pod's annotation stand in its text, and what the text has that
// decoding ignores. It is for those who show the text to its author.
type Source struct {
	// Unknown are the fields that are ignored, in the order of the text.
	Unknown []UnknownField

	offsets map[string]int
}

// UnknownField is a field that is ignored.
type UnknownField struct {
	// Field is its path, as in [Error], and Key its name.
	Field, Key string
	// Known are the fields that users may write there.
	Known []string
}

// LocatePod is DecodePod that also says where the fields stand: in an error, the source has those
// before it.
func LocatePod(value string) (*types.PodInfo, *Source, error) {
	source := &Source{offsets: map[string]int{}}
	pod, err := decodePod(value, source)
	return pod, source, err
}

// Offset returns the byte of the value at which the key of a field stands: a path as in [Error]. Of
// paths that are cut alike it is the first one's. It is 0 for a field that is not there.
func (s *Source) Offset(field string) int { return s.offsets[field] }

// ContainerField returns the path of a container in the list initcontainer or runningcontainer, of
// one of its lists such as requests, and of an entry of that. An empty list or entry is left out.
func ContainerField(containers, name, list, entry string) string {
	field := at(containers, name)
	if list != "" {
		field = in(field, list)
	}
	if entry != "" {
		field = at(field, entry)
	}
	return field
}

// unknown notes a field that is ignored.
func (r *reader) unknown(path, key string, known ...string) {
	if r.parts != nil {
		r.parts.Unknown = append(r.parts.Unknown, UnknownField{Field: path, Key: key, Known: known})
	}
}

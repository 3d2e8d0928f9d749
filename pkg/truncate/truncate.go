// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package truncate shortens text for messages, events and conditions, which have bounds in bytes
// and must be UTF-8.
package truncate

import "strings"

// Ellipsis is what Ellipsize puts in place of what it leaves out.
const Ellipsis = "…"

// Bytes returns at most the first n bytes of text, without a character that they cut, and without
// bytes that are not UTF-8. n must not be negative.
func Bytes(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}

// Ellipsize returns text unchanged if it has at most n bytes, and else Bytes of it and Ellipsis,
// which is not part of the n bytes.
func Ellipsize(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return Bytes(text, n) + Ellipsis
}

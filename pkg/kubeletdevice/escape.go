// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice

import "strings"

const digits = "0123456789ABCDEF"

// escape returns s as a segment of a resource's name.
func escape(s string) string {
	var out strings.Builder
	out.Grow(len(s))
	dot := false // a dot was just written
	for i := range len(s) {
		b := s[i]
		if b <= ' ' || b > '~' || strings.IndexByte(`"\/%`, b) >= 0 || b == '.' && dot {
			out.Write([]byte{'%', digits[b>>4], digits[b&15]})
			dot = false
			continue
		}
		out.WriteByte(b)
		dot = b == '.'
	}
	return out.String()
}

// unescape returns what was escaped, and whether s can be read at all.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		high, low := strings.IndexByte(digits, s[i+1]), strings.IndexByte(digits, s[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		out.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return out.String(), true
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package truncate

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsCutBetweenCharacters(t *testing.T) {
	for _, test := range []struct {
		text             string
		n                int
		bytes, ellipsize string
	}{
		{"", 0, "", ""},
		{"abc", 0, "", "…"},
		{"abc", 2, "ab", "ab…"},
		{"abc", 3, "abc", "abc"},
		{"abc", 4, "abc", "abc"},
		{"aä", 2, "a", "a…"},
		{"aä", 3, "aä", "aä"},
		{"世界", 4, "世", "世…"},
		{"a\xffbc", 3, "ab", "ab…"},
		{"a\xffbc", 4, "abc", "a\xffbc"}, // Ellipsize does not change a short text
	} {
		if got := Bytes(test.text, test.n); got != test.bytes {
			t.Errorf("Bytes(%q, %d) = %q, want %q", test.text, test.n, got, test.bytes)
		}
		if got := Ellipsize(test.text, test.n); got != test.ellipsize {
			t.Errorf("Ellipsize(%q, %d) = %q, want %q", test.text, test.n, got, test.ellipsize)
		}
	}
}

func TestTruncatedTextIsUTF8OfBoundedLength(t *testing.T) {
	text := strings.Repeat("aä世😀", 10)
	for n := range len(text) {
		got := Ellipsize(text, n)
		kept, marked := strings.CutSuffix(got, Ellipsis)
		if !utf8.ValidString(got) || !marked || len(kept) > n || len(kept) <= n-utf8.UTFMax ||
			!strings.HasPrefix(text, kept) {
			t.Errorf("%d bytes: %q", n, got)
		}
	}
}

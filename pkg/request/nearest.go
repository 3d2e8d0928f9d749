// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import "strings"

// maxWord is how long a word may be for which a similar one is looked for.
const maxWord = 128

// Nearest returns the known word that is most like a word, in any case, or "" if none is like
// it: at most a third of its characters may differ. Of several it is the first.
func Nearest(word string, known []string) string {
	if len(word) > maxWord {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	for _, candidate := range known {
		if candidate == word || len(candidate) > maxWord {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns how many bytes must be inserted, removed, replaced or exchanged with the next
// one to turn a into b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j // from an empty prefix of a to the prefixes of b
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

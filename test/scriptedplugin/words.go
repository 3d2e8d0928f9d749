// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scriptedplugin

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Words splits a line at blanks. A word in single quotes may have blanks, or be empty. In each
// word, <TEXT*N> is the text N times; and <A..B> stands for the numbers from A to B, with as many
// digits as A has, so that the word becomes one word for each.
func Words(line string) ([]string, error) {
	var words []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		word, rest := line, ""
		if strings.HasPrefix(line, "'") {
			var ends bool
			if word, rest, ends = strings.Cut(line[1:], "'"); !ends {
				return nil, errors.New("a quote does not end")
			}
		} else if at := strings.IndexAny(line, " \t"); at >= 0 {
			word, rest = line[:at], line[at:]
		}
		all, err := expand(word)
		if err != nil {
			return nil, err
		}
		words, line = append(words, all...), rest
	}
	return words, nil
}

// maxExpanded is how long a repeated text and how many numbers there may be.
const maxExpanded = 1 << 20

var (
	repeated = regexp.MustCompile(`<([^<>*]+)\*(\d+)>`)
	numbers  = regexp.MustCompile(`<(\d+)\.\.(\d+)>`)
)

// expand returns the words that a word stands for.
func expand(word string) ([]string, error) {
	var failed error
	word = repeated.ReplaceAllStringFunc(word, func(found string) string {
		parts := repeated.FindStringSubmatch(found)
		count, err := strconv.Atoi(parts[2])
		if err != nil || count*len(parts[1]) > maxExpanded {
			failed = fmt.Errorf("%s is too long", found)
			return ""
		}
		return strings.Repeat(parts[1], count)
	})
	at := numbers.FindStringSubmatchIndex(word)
	if failed != nil || at == nil {
		return []string{word}, failed
	}
	first, err := strconv.Atoi(word[at[2]:at[3]])
	last, lastErr := strconv.Atoi(word[at[4]:at[5]])
	if err = errors.Join(err, lastErr); err != nil || last-first > maxExpanded {
		return nil, fmt.Errorf("%s has too many numbers", word)
	}
	var all []string
	for i := first; i <= last; i++ {
		all = append(all, fmt.Sprintf("%s%0*d%s", word[:at[0]], at[3]-at[2], i, word[at[1]:]))
	}
	return all, nil
}

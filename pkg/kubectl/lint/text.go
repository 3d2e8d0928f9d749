// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// text is a file's content, in which places are bytes.
type text struct {
	content string
	lines   []int // where lines begin, as editors count them
	broken  []int // where they begin as YAML 1.1 counts them
}

func newText(content string) *text {
	t := &text{content: content, lines: []int{0}, broken: []int{0}}
	for at, r := range content {
		end := at + utf8.RuneLen(r)
		switch r {
		case '\n':
			t.lines, t.broken = append(t.lines, end), append(t.broken, end)
		case '\r':
			if !strings.HasPrefix(content[at+1:], "\n") {
				t.broken = append(t.broken, end)
			}
		case '\u0085', '\u2028', '\u2029':
			t.broken = append(t.broken, end)
		}
	}
	return t
}

// position returns line and column of a place, both from 1.
func (t *text) position(place int) (line, column int) {
	place = min(max(place, 0), len(t.content))
	line, found := slices.BinarySearch(t.lines, place)
	if found {
		line++
	}
	return line, utf8.RuneCountInString(t.content[t.lines[line-1]:place]) + 1
}

// begin returns the place where a node begins.
func (t *text) begin(node *yaml.Node) int {
	if node == nil || node.Line < 1 || node.Line > len(t.broken) {
		return 0
	}
	at := t.broken[node.Line-1]
	for range node.Column - 1 {
		_, size := utf8.DecodeRuneInString(t.content[at:])
		at += size
	}
	return at
}

// positionInScalar returns the place of a byte of a scalar's value. YAML folds, indents and escapes
// a value, but all of its characters that are no blanks stand in the text in their order: it is the
// place of the one of the same number. If text and value do not agree, it is where the scalar
// begins.
func (t *text) positionInScalar(node *yaml.Node, offset int) int {
	first := t.begin(node)
	at := t.valueOf(node, first)
	if at < 0 || offset < 0 || offset >= len(node.Value) {
		return first
	}
	for i, r := range node.Value {
		if unicode.IsSpace(r) {
			if i >= offset { // blanks have no place of their own
				return at
			}
			continue
		}
		found, begin, end := t.next(node.Style, at)
		if found != r {
			return first
		}
		if i >= offset {
			return begin
		}
		at = end
	}
	return first
}

// valueOf returns where the value of a scalar begins, behind its properties, its quote or the line
// of a block's indicators, or -1.
func (t *text) valueOf(node *yaml.Node, at int) int {
	for at < len(t.content) && (t.content[at] == '&' || t.content[at] == '!') { // anchor and tag
		blank := strings.IndexAny(t.content[at:], " \t\r\n")
		if blank < 0 {
			return -1
		}
		at += blank
		at = len(t.content) - len(strings.TrimLeft(t.content[at:], " \t\r\n"))
	}
	switch {
	case node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return at + 1
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		line := strings.IndexByte(t.content[min(at, len(t.content)):], '\n')
		if line < 0 {
			return -1
		}
		return at + line + 1
	default:
		return at
	}
}

// next returns the next character of a scalar that is no blank, and where it begins and ends in the
// text. At the end of the text, and for an escape that it does not know, it is utf8.RuneError.
func (t *text) next(style yaml.Style, at int) (r rune, begin, end int) {
	for at < len(t.content) {
		r, size := utf8.DecodeRuneInString(t.content[at:])
		switch {
		case r == '\'' && style&yaml.SingleQuotedStyle != 0:
			size = 2 // the quote is written twice
		case r == '\\' && style&yaml.DoubleQuotedStyle != 0:
			r, size = escape(t.content[at:])
		}
		if !unicode.IsSpace(r) {
			return r, at, at + size
		}
		at += size
	}
	return utf8.RuneError, at, at
}

// escape returns the character that an escape at the beginning of s stands for, a blank for one
// that leaves nothing, and its length.
func escape(s string) (rune, int) {
	if len(s) < 2 {
		return utf8.RuneError, len(s)
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	switch c := s[1]; {
	case strings.IndexByte(`"\/`, c) >= 0:
		return rune(c), 2
	case strings.IndexByte("nrt \t\r\n", c) >= 0:
		return ' ', 2
	case digits == 0 || len(s) < 2+digits:
		return utf8.RuneError, 2
	}
	code, err := strconv.ParseUint(s[2:2+digits], 16, 31)
	if err != nil {
		return utf8.RuneError, 2
	}
	return rune(code), 2 + digits
}

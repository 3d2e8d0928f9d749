// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// table is a table of a TOML document: the text of each value by its key.
type table map[string]string

// tableOf returns the table at that path of a TOML document as a program prints it: a table has a
// header of its own, and a value stands on one line, unless it is a string of several. It returns
// nil if there is none. The document's own values have the empty path.
func tableOf(document string, path ...string) (table, error) {
	var found table
	if len(path) == 0 {
		found = table{}
	}
	inside, quote := len(path) == 0, ""
	for line := range strings.Lines(document) {
		if quote != "" { // in a string of several lines
			if strings.Contains(line, quote) {
				quote = ""
			}
			continue
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			header, rest, err := keyOf(strings.TrimLeft(line, "["), ']')
			if err != nil || strings.Trim(rest, "]") != "" {
				return nil, fmt.Errorf("%q is no header of a table", line)
			}
			if inside = slices.Equal(header, path); inside && found == nil {
				found = table{}
			}
		default:
			key, value, err := keyOf(line, '=')
			if err != nil || len(key) != 1 {
				return nil, fmt.Errorf("%q has no key that is read here", line)
			}
			value = strings.TrimSpace(value)
			if inside {
				found[key[0]] = value
			}
			quote = unclosed(value)
		}
	}
	return found, nil
}

// unclosed returns the quotes in which a string of several lines ends that begins with the value,
// or "" if it begins none.
func unclosed(value string) string {
	for _, quote := range []string{`"""`, `'''`} {
		if rest, begins := strings.CutPrefix(value, quote); begins && !strings.Contains(rest, quote) {
			return quote
		}
	}
	return ""
}

// keyOf returns the parts of a key that are divided by dots, up to the end, and what follows.
func keyOf(text string, end byte) (parts []string, rest string, err error) {
	for {
		part, after, err := wordOf(strings.TrimLeft(text, " \t"), end)
		if err != nil {
			return nil, "", err
		}
		parts = append(parts, part)
		after = strings.TrimLeft(after, " \t")
		switch {
		case after == "":
			return nil, "", fmt.Errorf("%q has no %q", text, end)
		case after[0] == end:
			return parts, after[1:], nil
		case after[0] != '.':
			return nil, "", fmt.Errorf("%q is no key", text)
		}
		text = after[1:]
	}
}

// wordOf returns the part of a key that the text begins with, and what follows.
func wordOf(text string, end byte) (word, rest string, err error) {
	if text != "" && (text[0] == '"' || text[0] == '\'') {
		return stringOf(text)
	}
	at := strings.IndexFunc(text, func(r rune) bool { return r == '.' || r == rune(end) || r == ' ' || r == '\t' })
	if at <= 0 {
		return "", "", fmt.Errorf("%q begins with no key", text)
	}
	return text[:at], text[at:], nil
}

// stringOf returns the string in quotes that the text begins with, and what follows.
func stringOf(text string) (value, rest string, err error) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		return "", "", fmt.Errorf("%q begins with no string", text)
	}
	if text[0] == '\'' {
		value, rest, closed := strings.Cut(text[1:], "'")
		if !closed {
			return "", "", fmt.Errorf("%q has no end", text)
		}
		return value, rest, nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", "", fmt.Errorf("%q has no end, or signs that are not read here", text)
	}
	value, err = strconv.Unquote(quoted)
	return value, text[len(quoted):], err
}

// bool returns the value of a key, false if there is none.
func (t table) bool(key string) (bool, error) {
	switch value := t[key]; value {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q, and neither true nor false", key, value)
	}
}

// string returns the value of a key, "" if there is none.
func (t table) string(key string) (string, error) {
	if t[key] == "" {
		return "", nil
	}
	value, rest, err := stringOf(t[key])
	if err == nil && strings.TrimSpace(rest) != "" {
		err = fmt.Errorf("%s is %q, and no string alone", key, t[key])
	}
	return value, err
}

// strings returns the value of a key, none if there is none.
func (t table) strings(key string) (values []string, err error) {
	text := t[key]
	if text == "" {
		return nil, nil
	}
	text, opens := strings.CutPrefix(text, "[")
	text, closes := strings.CutSuffix(text, "]")
	if !opens || !closes {
		return nil, fmt.Errorf("%s is %q, and no list on one line", key, t[key])
	}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		value, rest, err := stringOf(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		values = append(values, value)
		rest = strings.TrimSpace(rest)
		after, more := strings.CutPrefix(rest, ",")
		if rest != "" && !more {
			return nil, fmt.Errorf("%s is %q, and no list of strings", key, t[key])
		}
		text = after
	}
	return values, nil
}

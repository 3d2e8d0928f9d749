// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reader reads the JSON of an annotation, token by token: encoding/json's own mapping to structs
// would fold the case of keys and let the last of two equal keys win.
type reader struct {
	dec   *json.Decoder
	value string
	start int     // offset of the last token
	parts *Source // nil if the caller needs no offsets
}

// newReader returns a reader of one JSON value of at most this number of bytes.
func newReader(value string, most int) (*reader, error) {
	if len(value) > most {
		return nil, &Error{
			Problem: fmt.Sprintf("the value has %d bytes", len(value)),
			Fix:     fmt.Sprintf("use at most %d", most),
		}
	}
	if !utf8.ValidString(value) {
		return nil, &Error{
			Problem: "the value is not UTF-8", Fix: "write it in UTF-8",
			Offset: strings.IndexRune(value, utf8.RuneError),
		}
	}
	var raw json.RawMessage
	if err := json.Unmarshal([]byte(value), &raw); err != nil {
		return nil, &Error{
			Problem: fmt.Sprintf("the value is not JSON (%v)", err), Fix: "correct it", Offset: offsetOf(err),
		}
	}
	r := &reader{dec: json.NewDecoder(strings.NewReader(value)), value: value}
	r.dec.UseNumber()
	return r, nil
}

// decode reads a value that must be one JSON object, and passes each of its fields to field.
func decode(value string, field func(r *reader, key string) error) error {
	return decodeParts(value, nil, field)
}

// decodeParts is decode that notes the offsets of the fields in parts, unless it is nil.
func decodeParts(value string, parts *Source, field func(r *reader, key string) error) error {
	r, err := newReader(value, MaxBytes)
	if err != nil {
		return err
	}
	r.parts = parts
	if strings.TrimSpace(value) == "null" {
		return &Error{Problem: "the value is null", Fix: "write an object, such as {}"}
	}
	err = r.object("", func(key string) error { return field(r, key) })
	var problem *Error
	if errors.As(err, &problem) {
		problem.Offset = r.start
	}
	return err
}

// offsetOf returns the offset of the syntax error.
func offsetOf(err error) int {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return max(0, int(syntax.Offset)-1) // bytes read up to the error
	}
	return 0
}

// object reads an object, or null, which means an object without fields. field must read the value
// of each field.
func (r *reader) object(path string, field func(key string) error) error {
	token, err := r.token(path)
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('{') {
		return &Error{Field: path, Problem: "it is " + describe(token), Fix: "write an object"}
	}
	return r.fields(path, field)
}

// fields reads the rest of an object after its beginning.
func (r *reader) fields(path string, field func(key string) error) error {
	seen := map[string]bool{}
	for r.dec.More() {
		token, err := r.token(path)
		if err != nil {
			return err
		}
		key, _ := token.(string) // the value is valid JSON: a field begins with a string
		if seen[key] {
			return &Error{Field: path, Problem: "the key " + quote(key) + " occurs twice", Fix: "keep one of them"}
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	_, err := r.token(path)
	return err
}

// token reads one token.
func (r *reader) token(path string) (json.Token, error) {
	r.start = r.next()
	token, err := r.dec.Token()
	if err != nil {
		return nil, &Error{Field: path, Problem: fmt.Sprintf("the value is not JSON (%v)", err), Fix: "correct it"}
	}
	return token, nil
}

// next returns the offset of the next token.
func (r *reader) next() int {
	start := int(r.dec.InputOffset())
	return len(r.value) - len(strings.TrimLeft(r.value[start:], " \t\r\n,:"))
}

// mark notes the field with the last key.
func (r *reader) mark(field string) {
	if r.parts == nil {
		return
	}
	if _, known := r.parts.offsets[field]; !known {
		r.parts.offsets[field] = r.start
	}
}

// skip reads the value of an unknown field.
func (r *reader) skip(path string) error {
	var unknown json.RawMessage
	if err := r.dec.Decode(&unknown); err != nil {
		return &Error{Field: path, Problem: fmt.Sprintf("the value is not JSON (%v)", err), Fix: "correct it"}
	}
	return nil
}

// name reads the name of a pod or node. An empty string and null mean no name.
func (r *reader) name(path string, destination *string) error {
	token, err := r.token(path)
	if err != nil || token == nil {
		return err
	}
	name, ok := token.(string)
	if !ok {
		return &Error{Field: path, Problem: "it is " + describe(token), Fix: "write a string"}
	}
	if name == "" {
		return nil
	}
	*destination = name
	return checkName(path, name)
}

// quantities reads a ResourceList of whole numbers.
func (r *reader) quantities(path string, destination *types.ResourceList) error {
	return r.list(path, destination, func(field, key string) (int64, error) {
		return r.number(field, key, math.MaxInt64)
	})
}

// list reads a ResourceList, each entry by read.
func (r *reader) list(
	path string, destination *types.ResourceList, read func(field, key string) (int64, error),
) error {
	list := types.ResourceList{}
	err := r.object(path, func(key string) error {
		field := entryPath(path, key)
		r.mark(field)
		quantity, err := read(field, key)
		list[types.ResourceName(key)] = quantity
		return err
	})
	if len(list) > 0 {
		*destination = list
	}
	return err
}

// scorers reads a ResourceScorer.
func (r *reader) scorers(path string, destination *types.ResourceScorer) error {
	list := types.ResourceScorer{}
	err := r.object(path, func(key string) error {
		field := entryPath(path, key)
		r.mark(field)
		scorer, err := r.number(field, key, math.MaxInt32)
		list[types.ResourceName(key)] = int32(scorer)
		return err
	})
	if len(list) > 0 {
		*destination = list
	}
	return err
}

// locations reads a ResourceLocation.
func (r *reader) locations(path string, destination *types.ResourceLocation) error {
	list := types.ResourceLocation{}
	err := r.object(path, func(key string) error {
		field := entryPath(path, key)
		if err := checkResource(field, key); err != nil {
			return err
		}
		token, err := r.token(field)
		if err != nil {
			return err
		}
		resource, ok := token.(string)
		if !ok {
			return &Error{Field: field, Problem: "it is " + describe(token), Fix: "write the name of a resource"}
		}
		list[types.ResourceName(key)] = types.ResourceName(resource)
		return checkResource(field, resource)
	})
	if len(list) > 0 {
		*destination = list
	}
	return err
}

// number reads the whole number of a resource, from 0 to most.
func (r *reader) number(path, name string, most int64) (int64, error) {
	if err := checkResource(path, name); err != nil {
		return 0, err
	}
	token, err := r.token(path)
	if err != nil {
		return 0, err
	}
	return wholeNumber(path, token, most)
}

// wholeNumber returns the whole number that a token is, from 0 to most.
func wholeNumber(path string, token json.Token, most int64) (int64, error) {
	literal, ok := token.(json.Number)
	number, err := strconv.ParseInt(literal.String(), 10, 64)
	negative := strings.HasPrefix(literal.String(), "-")
	if ok && err == nil && !negative && number <= most {
		return number, nil
	}
	fix := fmt.Sprintf("write a whole number from 0 to %d", most)
	switch {
	case !ok:
		return 0, &Error{Field: path, Problem: "it is " + describe(token), Fix: fix}
	case strings.ContainsAny(literal.String(), ".eE"):
		return 0, &Error{Field: path, Problem: quote(literal.String()) + " is not written as a whole number", Fix: fix}
	case negative:
		return 0, &Error{Field: path, Problem: quote(literal.String()) + " is negative", Fix: fix}
	default:
		return 0, &Error{Field: path, Problem: quote(literal.String()) + " is too large", Fix: fix}
	}
}

// describe names the kind of value that begins with a token.
func describe(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return "an object"
		}
		return "a list"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case bool:
		return "true or false"
	default:
		return "null"
	}
}

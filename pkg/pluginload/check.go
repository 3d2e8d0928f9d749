// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// Check returns a line about file if this program could load it as a plugin of any kind. The error
// is the text that a host logs for the file. Only a child process opens the file.
//
// The verdict is about this program. One that is built from the same sources, with the same flags,
// loads the same plugins, except those that share further libraries with only one of the two.
func Check(ctx context.Context, file string) (line string, err error) {
	file, err = filepath.Abs(file)
	if err != nil {
		return "", about(file, err)
	}
	c, err := inspect(file)
	if err != nil {
		return "", about(file, err)
	}
	var found, symbols []string
	for _, t := range targets() {
		symbols = append(symbols, t.symbol)
		if !c.exports(t) {
			continue
		}
		name, err := try(ctx, file, t)
		if err != nil {
			return "", about(file, err)
		}
		found = append(found, fmt.Sprintf("%s %q", t.what, name))
	}
	if found == nil {
		return "", about(file,
			refuse("export one of them from its package main", "exports neither %s", strings.Join(symbols, " nor ")))
	}
	return fmt.Sprintf("plugin %q: loads as %s, %s", file, strings.Join(found, " and "), c.describe()), nil
}

// Entries returns the entry points that file exports, of those that a host looks for: CreateSymbol
// of package device, of package devicescheduler, or both. It only reads the file. The error is the
// text that a host logs for the file.
func Entries(file string) (symbols []string, err error) {
	c, err := inspect(file)
	if err != nil {
		return nil, about(file, err)
	}
	for _, t := range targets() {
		if c.exports(t) {
			symbols = append(symbols, t.symbol)
		}
	}
	return symbols, nil
}

// Try returns an error unless this program could load file by that entry point, one of those that
// Entries returns. Only a child process opens the file. The error is the text that a host logs for
// the file.
func Try(ctx context.Context, file, symbol string) error {
	c, err := inspect(file)
	if err != nil {
		return about(file, err)
	}
	for _, t := range targets() {
		if t.symbol != symbol {
			continue
		}
		if err := c.require(t); err != nil {
			return about(file, err)
		}
		if _, err := try(ctx, file, t); err != nil {
			return about(file, err)
		}
		return nil
	}
	return fmt.Errorf("unknown entry point %q", symbol)
}

// Open opens file in this process, which a bad file may end: see [StartChild]. It creates the
// plugin and prepares it, as LoadDir does, once per file and process.
func Open[T named](file string, kind Kind[T]) (Loaded[T], error) {
	o, err := openContained(file, kind)
	if err != nil {
		return Loaded[T]{}, about(file, err)
	}
	return Loaded[T]{File: file, Name: o.name, Plugin: o.plugin}, nil
}

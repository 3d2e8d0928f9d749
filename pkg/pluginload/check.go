// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A Checker checks whether this program can load plugin files, one after another, like the files of
// a directory: it takes the earlier files for open. Its zero value has no open files. It is for one
// goroutine.
type Checker struct {
	// AllowWritable accepts files that users other than root may change; see [AllowWritableFlag].
	AllowWritable bool

	open map[string][]*candidate // by entry point: no program opens plugins of two kinds
}

// Check returns a line about file if this program can load it as a plugin of any kind. The error is
// the text that a host logs for the file. Only a child process opens the file.
//
// The result applies to this program. A program built from the same sources with the same flags
// loads the same plugins, except those that share further libraries with only one of the two.
func (k *Checker) Check(ctx context.Context, file string) (line string, err error) {
	file, err = filepath.Abs(file)
	if err != nil {
		return "", withFile(file, err)
	}
	if !isPluginName(filepath.Base(file)) {
		return "", withFile(file,
			refuse("rename it", "is left out by its name, which does not end in .so, or begins with a dot"))
	}
	c, err := read(file, k.AllowWritable)
	if err != nil {
		return "", withFile(file, err)
	}
	entries, err := c.entries()
	if err != nil {
		return "", withFile(file, err)
	}
	var found []string
	for _, t := range entries {
		name, err := c.tryAfter(ctx, t, k.open[t.symbol])
		if err != nil {
			return "", withFile(file, err)
		}
		if k.open == nil {
			k.open = map[string][]*candidate{}
		}
		k.open[t.symbol] = append(k.open[t.symbol], c)
		found = append(found, fmt.Sprintf("%s %q", t.what, name))
	}
	return fmt.Sprintf("plugin %q: loads as %s, %s", file, strings.Join(found, " and "), c.describe()), nil
}

// entries returns the kinds whose entry point c exports: one of them or both.
func (c *candidate) entries() ([]target, error) {
	all := targets()
	found := slices.DeleteFunc(slices.Clone(all), func(t target) bool { return !c.exports(t) })
	if len(found) == 0 {
		return nil, refuse("export one of them from its package main", "exports neither %s nor %s", all[0].symbol,
			all[1].symbol)
	}
	return found, nil
}

// Files returns the files of a directory that a host considers, in loading order.
func Files(dir string) ([]string, error) { return pluginFiles(dir) }

// Entries returns the hosts' entry points that file exports: CreateSymbol of package device, of
// package devicescheduler, or both. It only reads the file. The error is the text that a host logs
// for the file.
func Entries(file string) (symbols []string, err error) {
	c, err := inspect(file)
	if err != nil {
		return nil, withFile(file, err)
	}
	entries, err := c.entries()
	if err != nil {
		return nil, withFile(file, err)
	}
	for _, t := range entries {
		symbols = append(symbols, t.symbol)
	}
	return symbols, nil
}

// Try returns an error unless this program can load file by this entry point, one of those that
// Entries returns. Only a child process opens the file. The error is the text that a host logs for
// the file.
func Try(ctx context.Context, file, symbol string) error {
	c, err := inspect(file)
	if err != nil {
		return withFile(file, err)
	}
	for _, t := range targets() {
		if t.symbol != symbol {
			continue
		}
		if err := c.require(t); err != nil {
			return withFile(file, err)
		}
		if _, err := try(ctx, file, t); err != nil {
			return withFile(file, err)
		}
		return nil
	}
	return fmt.Errorf("unknown entry point %q", symbol)
}

// Open opens file in this process; a bad file may end the process, see [StartChild]. It creates and
// prepares the plugin, as LoadDir does, once per file and process.
func Open[T named](file string, kind Kind[T]) (Loaded[T], error) {
	o, err := openIsolated(file, kind)
	if err != nil {
		return Loaded[T]{}, withFile(file, err)
	}
	return Loaded[T]{File: file, Name: o.name, Plugin: o.plugin}, nil
}

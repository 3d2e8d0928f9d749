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

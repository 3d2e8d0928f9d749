// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package columns

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/term"
)

// Terminal is what a table is written to.
type Terminal struct {
	// Tree says that trees are drawn: a person reads the table.
	Tree bool
	// Color says that colours are written.
	Color bool
	// Width is the terminal's width, 0 for none.
	Width int
}

// TerminalOf returns what out is: all zero unless it is a terminal. getenv returns variables of the
// environment, as os.Getenv does: NO_COLOR, if it is not empty, and TERM=dumb switch colours off.
// On Windows there are none, since older consoles would print the codes.
func TerminalOf(out io.Writer, getenv func(string) string) Terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Terminal{}
	}
	t := Terminal{Tree: true, Color: runtime.GOOS != "windows" && colors(getenv)}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil {
		t.Width = width
	}
	return t
}

// colors reports whether the environment allows colours.
func colors(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

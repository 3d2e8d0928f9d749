// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package utils holds the small helpers that plugins share: logging through the host's logger, maps
// in a stable order, nested maps, and comparison of the exchanged types.
package utils

import (
	"fmt"
	"log"
)

// The host points these at its own logger before it opens the first plugin and never changes them
// afterwards, so that plugins may call them from any goroutine. They are never nil: outside a host
// they write to the standard library's log. Levels: 0 what an operator must see, 2 changes of
// state, 4 decisions, 6 detail.
var (
	// Logb reports whether messages of that level are written.
	Logb func(level int) bool = LogV
	// Logf writes a message of that level.
	Logf func(level int, format string, args ...any) = Log
	// Warningf writes a warning.
	Warningf func(format string, args ...any) = Warning
	// Errorf writes an error.
	Errorf func(format string, args ...any) = Error
)

// callerDepth makes the standard library's log name the caller of this package's functions.
const callerDepth = 2

// LogV reports whether Log writes messages of that level: level 0 and below.
func LogV(level int) bool {
	return level <= 0
}

// Log writes a message to the standard library's log, when LogV is true for the level.
func Log(level int, format string, args ...any) {
	if LogV(level) {
		_ = log.Output(callerDepth, fmt.Sprintf(format, args...))
	}
}

// Warning writes a warning to the standard library's log.
func Warning(format string, args ...any) {
	_ = log.Output(callerDepth, "warning: "+fmt.Sprintf(format, args...))
}

// Error writes an error to the standard library's log.
func Error(format string, args ...any) {
	_ = log.Output(callerDepth, "error: "+fmt.Sprintf(format, args...))
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kdlog is leveled logging for plugins, in the shape of Kubernetes' own. Everything goes
// where package utils sends it: to the host's logger inside a host, to the standard library's log
// outside one.
package kdlog

import (
	"fmt"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

// Level is the verbosity of a message. See utils.Logb for what the levels mean.
type Level int32

// Verbose is whether messages of some level are written: V(4).Infof(…), or if V(4) { … } around
// messages that are costly to build.
type Verbose bool

// V asks for that level.
func V(level Level) Verbose {
	return Verbose(utils.Logb(int(level)))
}

// Info writes its arguments as fmt.Sprint does.
func (v Verbose) Info(args ...any) {
	if v {
		utils.Logf(0, "%s", fmt.Sprint(args...))
	}
}

// Infoln writes its arguments as fmt.Sprintln does.
func (v Verbose) Infoln(args ...any) {
	if v {
		utils.Logf(0, "%s", sprintln(args...))
	}
}

// Infof writes its arguments as fmt.Sprintf does.
func (v Verbose) Infof(format string, args ...any) {
	if v {
		utils.Logf(0, format, args...)
	}
}

// Info writes a message of level 0, as fmt.Sprint does.
func Info(args ...any) { V(0).Info(args...) }

// Infoln writes a message of level 0, as fmt.Sprintln does.
func Infoln(args ...any) { V(0).Infoln(args...) }

// Infof writes a message of level 0, as fmt.Sprintf does.
func Infof(format string, args ...any) { V(0).Infof(format, args...) }

// Warning writes a warning, as fmt.Sprint does.
func Warning(args ...any) { utils.Warningf("%s", fmt.Sprint(args...)) }

// Warningln writes a warning, as fmt.Sprintln does.
func Warningln(args ...any) { utils.Warningf("%s", sprintln(args...)) }

// Warningf writes a warning, as fmt.Sprintf does.
func Warningf(format string, args ...any) { utils.Warningf(format, args...) }

// Error writes an error, as fmt.Sprint does.
func Error(args ...any) { utils.Errorf("%s", fmt.Sprint(args...)) }

// Errorln writes an error, as fmt.Sprintln does.
func Errorln(args ...any) { utils.Errorf("%s", sprintln(args...)) }

// Errorf writes an error, as fmt.Sprintf does.
func Errorf(format string, args ...any) { utils.Errorf(format, args...) }

// InitLogs has nothing to set up: the host owns the logger. It is there for sources that call it.
func InitLogs() {}

// FlushLogs has nothing to flush: no message is held back. It is there for sources that call it.
func FlushLogs() {}

func sprintln(args ...any) string {
	return strings.TrimSuffix(fmt.Sprintln(args...), "\n")
}

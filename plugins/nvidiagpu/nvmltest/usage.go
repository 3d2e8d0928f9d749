// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvmltest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Unknown stands for a number that the driver does not know.
const Unknown = -1

// Usage is how a GPU or an instance is used.
type Usage struct {
	Processes []Process
	// Busy is in percent, or Unknown.
	Busy int
}

// Process uses a GPU or an instance.
type Process struct {
	PID int
	// Memory is in bytes, or Unknown.
	Memory int64
	// Graphics says that the process has a context for graphics, not for computing.
	Graphics bool
	// Samples are what the driver has sampled of it.
	Samples []Sample
}

// Sample says how busy a process kept a GPU.
type Sample struct {
	// Timestamp grows from sample to sample.
	Timestamp uint64
	Percent   int
}

// SetUsage has the GPUs and instances, by UUID, be used so, and all others not at all. The memory
// that is used is the sum of the processes'.
func (l Library) SetUsage(t *testing.T, usage map[string]Usage) {
	t.Helper()
	if err := l.WriteUsage(usage); err != nil {
		t.Fatal(err)
	}
}

// WriteUsage does what SetUsage does.
func (l Library) WriteUsage(usage map[string]Usage) error {
	var text strings.Builder
	for uuid, of := range usage {
		if of.Busy != Unknown {
			fmt.Fprintf(&text, "%s busy %d\n", uuid, of.Busy)
		}
		for _, p := range of.Processes {
			kind := "compute"
			if p.Graphics {
				kind = "graphics"
			}
			fmt.Fprintf(&text, "%s %s %d %d\n", uuid, kind, p.PID, p.Memory)
			for _, s := range p.Samples {
				fmt.Fprintf(&text, "%s sample %d %d %d\n", uuid, p.PID, s.Timestamp, s.Percent)
			}
		}
	}
	next := l.usage + ".test"
	return errors.Join(os.WriteFile(next, []byte(text.String()), 0o644), os.Rename(next, l.usage))
}

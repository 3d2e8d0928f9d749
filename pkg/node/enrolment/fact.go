// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import "fmt"

// Risk is what a fact means for the enrolment.
type Risk string

// The risks.
const (
	// None needs nothing.
	None Risk = "none"
	// Notice is something to know, or to do later.
	Notice Risk = "notice"
	// Blocks keeps the node from being enrolled.
	Blocks Risk = "blocks"
)

// Fact is something about the node or its cluster.
type Fact struct {
	// Name says what it is about, in a word.
	Name string `json:"name"`
	// Finding is what was found, in a line.
	Finding string `json:"finding"`
	Risk    Risk   `json:"risk"`
	// Advice is what to do; empty with the risk None.
	Advice string `json:"advice,omitempty"`
}

func fact(name, format string, args ...any) Fact {
	return Fact{Name: name, Finding: fmt.Sprintf(format, args...), Risk: None}
}

func (f Fact) notice(advice string) Fact {
	f.Risk, f.Advice = Notice, advice
	return f
}

func (f Fact) blocks(advice string) Fact {
	f.Risk, f.Advice = Blocks, advice
	return f
}

// unreadable is the fact that something is not known. It blocks: what is not known is not assumed.
func unreadable(name string, err error) Fact {
	return fact(name, "unknown: %v", err).blocks("make it readable")
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// maxLine bounds the text of a refusal, which may quote a plugin.
const maxLine = 2000

// rebuild is the next step for files that this program cannot open.
const rebuild = "rebuild it with go build -buildmode=plugin -trimpath"

// refusal is the reason for omitting a file, and the next step: two phrases for one line.
type refusal struct {
	Cause string
	Next  string

	Trace string // of the plugin's code that panicked or hung, as package runtime writes it
	Hung  bool
}

func (r *refusal) Error() string {
	line := strings.Join(strings.Fields(r.Cause+"; "+r.Next), " ")
	return truncate.Ellipsize(line, maxLine)
}

func refuse(next, causeFormat string, args ...any) *refusal {
	return &refusal{Cause: fmt.Sprintf(causeFormat, args...), Next: next}
}

// withFile adds the name of the file to err.
func withFile(file string, err error) error {
	return fmt.Errorf("plugin %q: %w", file, err)
}

// An Explanation says why a file is omitted.
type Explanation struct {
	// Cause is the reason, and Next the next step, as phrases.
	Cause, Next string
	// Trace is set if code of the plugin panicked or did not return: the stack, or the stacks of
	// all goroutines, as package runtime writes them. Hung says that it did not return.
	Trace string
	Hung  bool
}

// Explain explains the error of an omitted file.
func Explain(err error) Explanation {
	var r *refusal
	if errors.As(err, &r) {
		return Explanation(*r)
	}
	return Explanation{Cause: err.Error(), Next: reportToAuthor}
}

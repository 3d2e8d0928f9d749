// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"errors"
	"fmt"
	"strings"
)

// maxLine bounds the text of a refusal, which may quote a plugin.
const maxLine = 2000

// rebuild is the next step for files that can never be opened by this program.
const rebuild = "rebuild it with go build -buildmode=plugin -trimpath"

// refusal is why a file is left out, and the next step: two phrases for one line.
type refusal struct {
	Cause string
	Next  string
}

func (r *refusal) Error() string {
	line := strings.Join(strings.Fields(r.Cause+"; "+r.Next), " ")
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "…"
	}
	return line
}

func refuse(next, causeFormat string, args ...any) *refusal {
	return &refusal{Cause: fmt.Sprintf(causeFormat, args...), Next: next}
}

// about names the file that err is about.
func about(file string, err error) error {
	return fmt.Errorf("plugin %q: %w", file, err)
}

// Explain returns, of an error that says why a file is left out, the cause and the next step.
func Explain(err error) (cause, next string) {
	var r *refusal
	if errors.As(err, &r) {
		return r.Cause, r.Next
	}
	return err.Error(), askAuthor
}

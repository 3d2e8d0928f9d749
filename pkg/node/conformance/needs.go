// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"path"
)

// needs knows which checks have passed, and of the others which check stood in their way. The zero
// value knows of none.
type needs map[string]string // by check: empty for one that passed

// missing returns the outcome of a check one of whose needs has not passed.
func (n needs) missing(checks []string) (o outcome, missing bool) {
	for _, check := range checks {
		if cause, known := n[check]; !known || cause != "" {
			if !known {
				cause = check
			}
			return outcome{Status: NotApplicable, Reason: fmt.Sprintf("the check %s has to pass first",
				path.Base(cause))}, true
		}
	}
	return outcome{}, false
}

// note notes how a check ended.
func (n needs) note(check string, status Status, checks []string) {
	n[check] = ""
	if status == OK {
		return
	}
	n[check] = check
	for _, need := range checks {
		if cause := n[need]; cause != "" {
			n[check] = cause
			return
		}
	}
}

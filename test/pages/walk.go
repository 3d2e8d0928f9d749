// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"testing"
	"time"
)

// walkLimit is how long a reader may need for a walk, from the first command of a page to its last.
// On a quiet machine each takes half a minute.
const walkLimit = 5 * time.Minute

// EndWalk logs how long a walk has taken, and fails the test if that is too long.
func EndWalk(t testing.TB, what string, began time.Time) {
	t.Helper()
	took := time.Since(began)
	t.Logf("%s in %.0f s", what, took.Seconds())
	if took > walkLimit {
		t.Errorf("%s in %v, and a reader may need %v", what, took, walkLimit)
	}
}

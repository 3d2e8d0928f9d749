// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"fmt"
	"testing"
	"time"
)

func TestBackOffsAreBounded(t *testing.T) {
	b := backOffs{}
	now := time.Now()
	for i := range 2 * maxBackOffs {
		b.add(culprit{BlamedRequest, fmt.Sprint(i)}, "n", "", now.Add(time.Duration(i)))
	}
	b.add(culprit{BlamedRequest, "hangs"}, "n", "", now).overdue++
	b.add(culprit{BlamedRequest, "last"}, "n", "", now.Add(time.Hour))
	if len(b) != maxBackOffs {
		t.Errorf("%d are remembered, want %d", len(b), maxBackOffs)
	}
	for _, id := range []string{"hangs", "last", fmt.Sprint(2*maxBackOffs - 1)} {
		if b[culprit{BlamedRequest, id}] == nil {
			t.Errorf("%q is forgotten", id)
		}
	}
}

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import "testing"

func TestATryThatFollowsAnAnswerIsDecided(t *testing.T) {
	frontend := New(t.Context(), Options{})
	defer frontend.Close()
	decided := make(chan bool)
	frontend.decide("u/main", "first", func() (answer func()) {
		return func() {
			decided <- frontend.decide("u/main", "second", func() (answer func()) { return func() {} })
		}
	})
	if !<-decided {
		t.Error("the try that follows an answer is refused, as if its decision still ran")
	}
}

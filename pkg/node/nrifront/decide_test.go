// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import "testing"

func TestATryThatFollowsAnAnswerIsDecided(t *testing.T) {
	front := New(t.Context(), Options{})
	defer front.Close()
	decided := make(chan bool)
	front.decide("u/main", "first", func() (answer func()) {
		return func() {
			decided <- front.decide("u/main", "second", func() (answer func()) { return func() {} })
		}
	})
	if !<-decided {
		t.Error("the try that follows an answer is refused, as if its decision still ran")
	}
}
